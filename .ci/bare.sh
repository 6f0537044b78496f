#!/usr/bin/env bash
# Runs the two commands of the README where nothing is installed: in a Debian 12 root that debootstrap makes
# (minbase), with this tree as it stands, committed or not. Needs root and debootstrap.
#
#   .ci/bare.sh [--root FOLDER] [--keep] [--command demo|tests] [--packages FOLDER] [PART...]
#     --root FOLDER   where the roots are made [a new one in TMPDIR or /var/tmp]: about 3 GiB each, removed afterwards
#     --keep          does not remove them; a base that is there already is used again
#     --command NAME  only apps/demo.sh, or only tests/run.sh
#   PART, all when none is named:
#     root            a checkout, as root
#     user            a checkout, as an ordinary user with sudo
#     archive         as root, from the files alone: no .git, HOME not set, umask 077, no /dev/shm
#     image           the lines of the Dockerfile, in roots instead of images; then the command of the last one runs
#     packages        only when named: installs the Debian packages that cpack has left in build/ (--packages FOLDER
#                     names another one), and uses them (tests/package/debian.sh)
#
# Packages come from where this machine's apt gets them, with its proxy and certificates. What is mounted is so in a
# namespace of its own, which ends with each command. Prints a verdict with times for each; exits 1 when one fails.
set -euo pipefail
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
suite=bookworm

die() {
  echo "bare.sh: $*" >&2
  exit 2
}

base='' keep=no commands=(demo tests) parts=() packages=$tree/build
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) sed -n '2,/^set -e/{/^set -e/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --keep) keep=yes ;;
    --root | --command | --packages)
      [ $# -ge 2 ] || die "$1 needs a value"
      case $1 in
        --root) base=$2 ;;
        --command) commands=("$2") ;;
        *) packages=$2 ;;
      esac
      shift ;;
    root | user | archive | image | packages) parts+=("$1") ;;
    *) die "'$1' is neither an option nor a part; see .ci/bare.sh --help" ;;
  esac
  shift
done
[[ ${commands[0]} =~ ^(demo|tests)$ ]] || die "--command '${commands[0]}': demo or tests"
[ ${#parts[@]} -gt 0 ] || parts=(root user archive image)
[ "$(id -u)" -eq 0 ] || die "needs root: debootstrap and chroot do"
for needed in debootstrap unshare git; do
  command -v "$needed" >/dev/null || die "'$needed' is missing; apt-get install debootstrap util-linux git"
done
[ -n "$base" ] || base=$(mktemp -d "${TMPDIR:-/var/tmp}/pipit-bare.XXXXXX")
mkdir -p "$base"
base=$(cd "$base" && pwd)
failed=0

# shellcheck disable=SC2317  # the trap calls it
clean() {
  [ "$keep" = yes ] || rm -rf --one-file-system "$base"
}
trap clean EXIT

# The repositories of this release that this machine's apt uses, one "URI SUITE COMPONENT" a line.
repositories() {
  apt-get indextargets --format "\$(REPO_URI) \$(RELEASE) \$(COMPONENT)" 'Created-By: Packages' |
    awk -v suite="$suite" '$2 ~ "^" suite "(-|$)" && $3 == "main"' | sort -u
}

make_base() {
  local repository mirror
  mirror=$(repositories | awk -v suite="$suite" '$2 == suite { print $1; exit }')
  [ -n "$mirror" ] || die "apt of this machine has no repository of $suite"
  rm -rf --one-file-system "$base/base"
  echo "bare.sh: making a root" >&2
  debootstrap --variant=minbase "$suite" "$base/base" "$mirror" >"$base/debootstrap.log" 2>&1 ||
    { tail -n 20 "$base/debootstrap.log" >&2; die "debootstrap failed"; }
  while read -r repository; do printf 'deb %s\n' "$repository"; done < <(repositories) >"$base/base/etc/apt/sources.list"
  apt-config dump | { grep -E '^Acquire::((https?|ftp)::[^ ]|Check-|Retries)' || true; } >"$base/base/etc/apt/apt.conf.d/90machine"
  cp -L /etc/resolv.conf /etc/hosts "$base/base/etc/"
  local variable
  for variable in PIP_CERT SSL_CERT_FILE; do
    [ ! -f "${!variable-}" ] || cp -L "${!variable}" "$base/base/etc/machine-certificates.crt"
  done
  touch "$base/base/made"
}

# copy_tree FOLDER WITH_GIT: the files that git does not ignore.
# shellcheck disable=SC2016
copy_tree() {
  [ "$2" = no ] || git -c safe.directory="*" clone --quiet --no-local "$tree" "$1"
  mkdir -p "$1"
  git -c safe.directory="*" -C "$tree" ls-files -z --cached --others --exclude-standard |
    (cd "$tree" && xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh) |
    tar -C "$tree" --null --files-from - --create | tar -C "$1" --extract --no-same-owner
}

# enter FOLDER USER UMASK HOME SHM COMMAND...: runs it in the root, with nothing of this machine's environment but how
# to reach the network.
enter() {
  local folder=$1 user=$2 mask=$3 home=$4 shm=$5 settings=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  shift 5
  local variable
  for variable in http_proxy https_proxy ftp_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL \
    PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT; do
    [ -z "${!variable-}" ] || settings+=("$variable=${!variable}")
  done
  [ ! -f "$folder/etc/machine-certificates.crt" ] || settings+=(PIP_CERT=/etc/machine-certificates.crt)
  [ -z "$home" ] || settings+=("HOME=$home")
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child --propagation private bash -euc '
    folder=$1 user=$2 mask=$3 shm=$4
    shift 4
    mount -t proc proc "$folder/proc"
    mount -t sysfs -o ro sysfs "$folder/sys"
    mkdir -p "$folder/dev/pts"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$folder/dev/pts"
    [ ! -c "$folder/dev/ptmx" ] || mount --bind "$folder/dev/pts/ptmx" "$folder/dev/ptmx"
    if [ "$shm" = yes ]; then
      mkdir -p "$folder/dev/shm"
      mount -t tmpfs -o mode=1777 tmpfs "$folder/dev/shm"
    else
      rm -rf "$folder/dev/shm"
    fi
    umask "$mask"
    exec chroot --userspec="$user" "$folder" "$@"' bash "$folder" "$user" "$mask" "$shm" env -i "${settings[@]}" "$@" </dev/null
}

run_part() {
  local part=$1 folder=$base/$1 user=root mask=022 home=/root shm=yes place=/root/pipit command script status verdict
  rm -rf --one-file-system "$folder"
  cp -a "$base/base" "$folder"
  case $part in
    user)
      place=/home/someone/pipit home=/home/someone user=someone
      enter "$folder" root 022 /root yes sh -euc 'apt-get -qq update
        apt-get -qq install --no-install-recommends sudo >/dev/null
        useradd --create-home --shell /bin/bash someone
        echo "someone ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/someone' >"$base/$part-sudo.log" 2>&1 ||
        { tail -n 20 "$base/$part-sudo.log" >&2; die "could not make a user with sudo"; } ;;
    archive) mask=077 home='' shm=no place=/srv/pipit ;;
  esac
  copy_tree "$folder$place" "$([ "$part" = archive ] && echo no || echo yes)"
  [ "$user" = root ] || enter "$folder" root 022 /root yes chown -R "$user:$user" "$place"
  for command in "${commands[@]}"; do
    script=apps/demo.sh
    [ "$command" = demo ] || script=tests/run.sh
    echo "bare.sh: $part: bash $script (output in $base/$part-$command.log)" >&2
    status=0
    TIMEFORMAT='%0R s, %0U + %0S s of CPU'
    { time enter "$folder" "$user" "$mask" "$home" "$shm" bash "$place/$script" >"$base/$part-$command.log" 2>&1; } \
      2>"$base/times" || status=$?
    verdict=passed
    if [ "$status" -ne 0 ]; then
      verdict="FAILED (exit code $status)" failed=1
      tail -n 60 "$base/$part-$command.log" >&2
    fi
    printf '%-8s %-6s %s   %s\n' "$part" "$command" "$verdict" "$(cat "$base/times")"
    grep '% tests passed' "$base/$part-$command.log" | tail -n 1 || true
  done
  [ "$keep" = yes ] || rm -rf --one-file-system "$folder"
}

# copy_into FOLDER SOURCE TARGET [STAGE]: what COPY does, from this tree or from the root of a stage.
copy_into() {
  local folder=$1 source=$2 target=$3 from=$tree
  [ $# -lt 4 ] || from=$base/image-$4
  if [ "$source" = . ]; then
    copy_tree "$folder$target" no
  else
    mkdir -p "$(dirname "$folder$target")" && cp -a "$from/${source#/}" "$folder$target"
  fi
}

# The stages of the Dockerfile, in its order; sets `last` to the root of the last one.
build_image() {
  local instruction rest folder='' place=/ words
  while read -r instruction rest; do
    read -ra words <<<"$rest"
    case $instruction in
      '' | '#'*) continue ;;
      FROM)
        place=/ folder=$base/image-${words[2]-last}
        rm -rf --one-file-system "$folder"
        case ${words[0]} in
          debian:12 | debian:12-slim) cp -a "$base/base" "$folder" ;;
          *) cp -a "$base/image-${words[0]}" "$folder" ;;
        esac ;;
      COPY)
        case ${words[0]} in
          --from=*) copy_into "$folder" "${words[1]}" "${words[2]}" "${words[0]#--from=}" || return 1 ;;
          *) copy_into "$folder" "${words[0]}" "${words[1]}" || return 1 ;;
        esac ;;
      WORKDIR) place=${words[0]} ;;
      RUN) enter "$folder" root 022 /root yes sh -euc "cd $place; $rest" || { echo "failed: RUN $rest" && return 1; } ;;
      ENTRYPOINT) last=$folder ;;
      *) echo "the Dockerfile has $instruction, which bare.sh does not know" && return 1 ;;
    esac
  done < <(sed -e ':next' -e '/\\$/{N;s/\\\n *//;b next' -e '}' "$tree/Dockerfile")
}

run_image() {
  local last='' verdict=passed log=$base/image.log
  echo "bare.sh: image: the Dockerfile (output in $log)" >&2
  TIMEFORMAT='%0R s, %0U + %0S s of CPU'
  if ! { time build_image >"$log" 2>&1; } 2>"$base/times" || [ -z "$last" ] ||
    ! enter "$last" root 022 /root yes pipit inspect resnet20-cifar10 >>"$log" 2>&1; then
    verdict=FAILED failed=1
    tail -n 60 "$log" >&2
  fi
  printf '%-8s %-6s %s   %s\n' image '' "$verdict" "$(cat "$base/times")"
  [ "$keep" = yes ] || rm -rf --one-file-system "$base"/image-*
}

run_packages() {
  local folder=$base/packages verdict=passed log=$base/packages.log
  compgen -G "$packages/pipit_*.deb" >/dev/null || die "$packages has no Debian packages; run 'cpack -G DEB' there"
  rm -rf --one-file-system "$folder"
  cp -a "$base/base" "$folder"
  mkdir "$folder/srv/packages"
  cp "$packages"/*.deb "$folder/srv/packages"
  cp -r "$tree/examples" "$tree/tests/package/debian.sh" "$folder/srv"
  echo "bare.sh: packages: tests/package/debian.sh (output in $log)" >&2
  TIMEFORMAT='%0R s, %0U + %0S s of CPU'
  if ! { time enter "$folder" root 022 /root yes bash /srv/debian.sh /srv/packages /srv/examples >"$log" 2>&1; } 2>"$base/times"; then
    verdict=FAILED failed=1
    tail -n 60 "$log" >&2
  fi
  printf '%-8s %-6s %s   %s\n' packages '' "$verdict" "$(cat "$base/times")"
  [ "$keep" = yes ] || rm -rf --one-file-system "$folder"
}

[ -e "$base/base/made" ] || make_base
for part in "${parts[@]}"; do
  case $part in
    image) run_image ;;
    packages) run_packages ;;
    *) run_part "$part" ;;
  esac
done
if [ "$failed" -ne 0 ]; then
  keep=yes
  echo "bare.sh: what failed is in $base" >&2
fi
exit "$failed"

#!/usr/bin/env bash
# Builds the documents as a site into build/site, with mkdocs; every warning is an error: pages without a place in the
# navigation, links that lead nowhere. Where mkdocs or its theme is missing it says so and builds nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! grep -q '[[|]material[]|]' <<<"$(mkdocs build --help 2>/dev/null)"; then
  echo "site: skipped: mkdocs and its theme are missing (Debian: apt-get install mkdocs mkdocs-material)"
  exit 0
fi
status=0
output=$(PYTHONWARNINGS=ignore mkdocs build --strict --clean 2>&1) || status=$?
if [ "$status" -ne 0 ]; then
  grep -v '^INFO' <<<"$output" >&2
  exit 1
fi
echo "site: $(find build/site -name '*.html' | wc -l) pages in build/site"

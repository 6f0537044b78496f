# pipit for CPUs:
#   docker build --tag pipit .
#   docker run --rm --volume "$PWD:/data" pipit classify /data/model.onnx /data/photo.jpg
# .ci/bare.sh image runs these lines in a root that debootstrap makes.

# What every build needs; the development container uses it.
FROM debian:12 AS tools
COPY cmake/setup.sh /opt/setup/cmake/setup.sh
RUN bash -euc 'source /opt/setup/cmake/setup.sh; install_packages ca-certificates git "${build_packages[@]}"'

FROM tools AS build
COPY . /src
WORKDIR /src
RUN cmake --preset default -DPIPIT_TESTS=OFF -DPIPIT_CUDA=OFF
RUN cmake --build --preset default --parallel "$(nproc)"
RUN cmake --install build --strip --prefix /opt/pipit

# The command and the libraries that it is linked with. `pipit fetch` needs python3 and pip, which are not in here.
FROM debian:12-slim
RUN apt-get update && \
    apt-get install --yes --no-install-recommends libfmt9 libjpeg62-turbo libpng16-16 libprotobuf-lite32 libwebp7 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/pipit/bin/pipit /usr/local/bin/pipit
ENTRYPOINT ["pipit"]

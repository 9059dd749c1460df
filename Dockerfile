# syntax=docker/dockerfile:1
# Every binary in one image: worker, terminal-gw with its page, setup and probe. Static, without a shell, as nobody. The
# same commit and VERSION give the same binaries. `--target emulator` is for trying things out: its sandboxes are
# processes, and need a userland.
ARG GO_VERSION=1.26
ARG NODE_VERSION=20

FROM --platform=$BUILDPLATFORM node:${NODE_VERSION}-bookworm-slim AS page
WORKDIR /src/internal/terminal/page
COPY internal/terminal/page/package.json internal/terminal/page/package-lock.json internal/terminal/page/.npmrc ./
RUN npm ci --no-audit --no-fund
COPY internal/terminal/page/ ./
RUN node build.mjs

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION}-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd/ cmd/
COPY internal/ internal/
COPY deploy/setup/ deploy/setup/
COPY deploy/probe/ deploy/probe/
# The release, such as v1.2.3. Without one the binaries say which release they are on the way to.
ARG VERSION=
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
    -ldflags="-s -w -buildid= -X github.com/wakebus/wakebus/internal/telemetry.version=${VERSION}" \
    -o /rootfs/usr/local/bin/ ./cmd/worker ./cmd/terminal-gw ./deploy/setup ./deploy/probe
RUN mkdir -p /rootfs/tmp /rootfs/etc && chmod 1777 /rootfs/tmp && printf 'wakebus:x:65532:65532::/:/none\n' > /rootfs/etc/passwd

FROM debian:bookworm-slim AS emulator
COPY --from=build /rootfs/usr/local/bin/worker /rootfs/usr/local/bin/probe /usr/local/bin/
RUN useradd --uid 65532 --create-home wakebus && mkdir /data && chown wakebus /data
USER 65532:65532
VOLUME /data
ENTRYPOINT ["/usr/local/bin/worker"]
CMD ["emulator", "--addr", "127.0.0.1:8088", "--dir", "/data", "--isolation", "mapped"]

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /rootfs/ /
COPY --from=page /src/internal/terminal/page/dist/ /usr/share/wakebus/page/
USER 65532:65532
ENV PATH=/usr/local/bin
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/worker"]
CMD ["run"]

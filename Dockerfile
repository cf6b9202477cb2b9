# One image for all commands: `node dist/cmd/<ingest|processor|controller|console|cli>/main.js`; the last also as `partner-ingest`.
# `make image` builds it with any engine, `make release` with buildx for amd64 and arm64.
ARG BASE_IMAGE=docker.io/library/node:26-bookworm-slim

# Both stages run on the builder's own processor, because what they make serves every one. An engine without BuildKit knows no
# BUILDPLATFORM; `linux` is then the processor it runs on.
FROM --platform=${BUILDPLATFORM:-linux} ${BASE_IMAGE} AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc .node-version ./
COPY internal/operators/package.json internal/operators/
# The image runs the Node that is tested, whatever BASE_IMAGE is.
RUN [ "$(node -v)" = "v$(cat .node-version)" ] || { echo "the base image has Node $(node -v), but $(cat .node-version) is tested: build with --build-arg BASE_IMAGE=docker.io/library/node:$(cat .node-version)-bookworm-slim" >&2; exit 1; }
RUN npm ci --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund --loglevel=error
# Types, source maps and READMEs go, npm's own note of the install, its link to the workspace, and 60 MB of fonts with all icons;
# licences stay.
RUN rm node_modules/partner-ingest-operators && find node_modules -type f \( -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' -o -name '*.map' \
      -o -name .package-lock.json -o -iname '*.md' ! -iname 'licen*' \) -delete \
    && find node_modules/lucide-static -mindepth 1 -maxdepth 1 ! -name icons ! -name LICENSE ! -name package.json -exec rm -r {} + \
    && if find node_modules -name '*.node' | grep .; then echo 'a dependency holds machine code' >&2; exit 1; fi

FROM --platform=${BUILDPLATFORM:-linux} ${BASE_IMAGE} AS program
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY internal/operators/package.json internal/operators/
RUN npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
COPY tsconfig.json tsconfig.build.json ./
COPY internal internal
COPY cmd cmd
RUN npm run -s build && chmod +x dist/cmd/cli/main.js \
    && mkdir /links && ln -s /app/dist/cmd/cli/main.js /links/partner-ingest

FROM ${BASE_IMAGE}
# For a pod of 512 MiB: a young generation in which a request dies before it is copied, a bound for the old one, and two malloc
# arenas (decision 18). The chart sets NODE_OPTIONS by the pod's memory limit.
ENV NODE_ENV=production NODE_OPTIONS="--max-semi-space-size=32 --max-old-space-size=256" MALLOC_ARENA_MAX=2
WORKDIR /app
COPY package.json LICENSE ./
COPY --from=dependencies /app/node_modules node_modules
COPY --from=program /links /usr/local/bin
COPY --from=program /app/dist dist
# A number, so that Kubernetes can check that it is not root. Nothing is written to the file system at run time.
USER 10001:10001
EXPOSE 8080 9090
# No shell between Node and the signals, and none needed. Kubernetes names the command: ["dist/cmd/processor/main.js"].
ENTRYPOINT ["node"]
CMD ["dist/cmd/ingest/main.js"]
ARG VERSION=0.0.0 REVISION=unknown
LABEL org.opencontainers.image.title="partner-ingest" \
      org.opencontainers.image.description="Accepts business applications from partners durably, creates accounts and e-mails the applicants." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

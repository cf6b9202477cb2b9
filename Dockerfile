# One image for all commands: `node dist/cmd/<ingest|processor|controller|cli>/main.js`; the last also as `partner-ingest`.
# `make image` builds it with Docker. `make release` reads the last stage, and makes the same files without Docker.
ARG BASE_IMAGE=node:24-bookworm-slim

FROM ${BASE_IMAGE} AS dependencies
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
COPY deploy/image deploy/image
RUN deploy/image/files.sh dependencies /out

FROM ${BASE_IMAGE} AS program
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
COPY tsconfig.json tsconfig.build.json LICENSE ./
COPY deploy/image deploy/image
COPY internal internal
COPY cmd cmd
RUN deploy/image/files.sh program /out

FROM ${BASE_IMAGE}
# For a pod of 512 MiB: a young generation in which a request dies before it is copied, a bound for the old one, and two malloc
# arenas (decision 17). The chart sets NODE_OPTIONS by the pod's memory limit.
ENV NODE_ENV=production NODE_OPTIONS="--max-semi-space-size=32 --max-old-space-size=256" MALLOC_ARENA_MAX=2
WORKDIR /app
COPY --from=dependencies /out /
COPY --from=program /out /
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

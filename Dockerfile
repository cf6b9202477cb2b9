# One image for all commands: `node dist/cmd/<ingest|processor|controller|cli>/main.js`; the last also as `partner-ingest`.
ARG BASE_IMAGE=node:24-bookworm-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts --loglevel=error
COPY tsconfig.json tsconfig.build.json ./
COPY internal internal
COPY cmd cmd
RUN npm run -s build && chmod +x dist/cmd/cli/main.js

FROM ${BASE_IMAGE} AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional --ignore-scripts --loglevel=error

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="partner-ingest" \
      org.opencontainers.image.description="Accepts business applications from partners durably, creates accounts and e-mails the applicants." \
      org.opencontainers.image.licenses="Apache-2.0"
ENV NODE_ENV=production
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY package.json LICENSE ./
RUN ln -s /app/dist/cmd/cli/main.js /usr/local/bin/partner-ingest
# A number, so that Kubernetes can check that it is not root. Nothing here is written to at run time.
USER 10001:10001
EXPOSE 8080 9090
# No shell between Node and the signals. Kubernetes names the process to run: ["dist/cmd/processor/main.js"].
ENTRYPOINT ["node"]
CMD ["dist/cmd/ingest/main.js"]

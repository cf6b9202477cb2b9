#!/usr/bin/env bash
# Publishes this commit as a release: the image for amd64 and arm64 with its SBOM and provenance, and the chart that names this
# image by digest; signs both, and verifies them as docs/verify.md says. .github/workflows/release.yml runs it after the tests.
# Usage: release.sh VERSION REPOSITORY [KEY]. KEY is cosign's; without it the identity of the workflow that runs signs.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 repository=$2 key=${3:-}
chart_repository=$repository/charts

refuse() {
  echo "not released: $*" >&2
  exit 1
}

[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?$ ]] || refuse 'VERSION must be such as 0.1.0 or 0.1.0-rc.1'
[[ $repository == */* ]] || refuse 'REPOSITORY must be such as registry.example.com/partner-ingest'
[ -z "$(git status --porcelain)" ] || refuse 'the working tree has changes: commit them first'
for file in package.json charts/partner-ingest/Chart.yaml; do
  grep -qE "^ *\"?version\"?: \"?${version%-rc.*}\"?,?$" "$file" || refuse "$file must say ${version%-rc.*}"
done
grep -q "^## $version - " CHANGELOG.md || refuse "CHANGELOG.md has no heading \"## $version - DATE\""
docker buildx version > /dev/null 2>&1 || refuse 'there is no docker buildx'

folder=.run/release/$version
rm -rf "$folder"
mkdir -p "$folder"
helm=$(deploy/local/with-node.sh node tools/go-program.ts helm)
cosign=$(deploy/local/with-node.sh node tools/go-program.ts cosign)

# Files are dated by the commit, so that two builds differ in nothing that was not meant.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) docker buildx build . --push --tag "$repository:$version" \
  --platform linux/amd64,linux/arm64 --sbom=true --provenance=mode=max --metadata-file "$folder/image.json" \
  --build-arg BASE_IMAGE="docker.io/library/node:$(cat .node-version)-bookworm-slim" --build-arg VERSION="$version" --build-arg REVISION="$(git rev-parse HEAD)"
image=$(sed -n 's/.*"containerimage.digest": "\(.*\)".*/\1/p' "$folder/image.json")

cp -R charts/partner-ingest "$folder/chart"
sed -i -e "s|^  repository: partner-ingest |  repository: $repository |" -e "s|^  digest: '' |  digest: $image |" "$folder/chart/values.yaml"
grep -q "repository: $repository " "$folder/chart/values.yaml" && grep -q "digest: $image " "$folder/chart/values.yaml" ||
  refuse 'the values of the chart do not name the image'
"$helm" lint --quiet --set evaluation.enabled=true "$folder/chart"
"$helm" package --version "$version" --app-version "$version" --destination "$folder" "$folder/chart"
rm -r "$folder/chart"
chart=$("$helm" push "$folder/partner-ingest-$version.tgz" "oci://$chart_repository" 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p')

by=()
if [ -n "$key" ]; then by=(--key "$key" --tlog-upload=false --use-signing-config=false); fi
for what in "$repository@$image" "$chart_repository/partner-ingest@$chart"; do "$cosign" sign --yes "${by[@]}" "$what"; done

if [ -n "$key" ]; then
  "$cosign" public-key --key "$key" > "$folder/cosign.pub"
  by="--key $folder/cosign.pub --insecure-ignore-tlog"
else
  by="--certificate-identity https://github.com/$GITHUB_WORKFLOW_REF --certificate-oidc-issuer https://token.actions.githubusercontent.com"
fi
sed -n '/^```sh$/,/^```$/p' docs/verify.md | grep -v '^```' > "$folder/verify.sh"
by=$by repository=$repository version=$version PATH="$(dirname "$cosign"):$PATH" bash -euo pipefail "$folder/verify.sh"

awk -v heading="## $version - " 'index($0, "## ") == 1 { shown = index($0, heading) == 1; next } shown' CHANGELOG.md > "$folder/CHANGES.md"
echo "released $repository:$version ($image) and its chart ($chart)"

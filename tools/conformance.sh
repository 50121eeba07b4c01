#!/bin/sh
# `make conformance`: the tests that need servers of others, such as Redis and PostgreSQL.
#
# Takes MILEPOST_WHEEL_PROFILE (cargo profile of the wheel, default dev) and arguments for pytest. Servers that are
# missing are installed from apt where this may be done, and named otherwise. Gives the exit code of pytest, or 2 when
# something is missing. The tests start the servers themselves, each on a port of its own.
set -u
. "$(dirname "$0")/common.sh"
cd "$root" || exit 2

need_toolchains redis-server postgres prometheus mmdebstrap node npm chromium
sh tools/pebble.sh
results=$(mktemp -d) || exit 2
trap 'rm -rf "$results"' EXIT
cat tests/requirements.txt tests/requirements-conformance.txt >"$results/requirements.txt"
venv=$(venv conformance "$PYTHON" "$results/requirements.txt") || exit 2

sslyze=$(venv sslyze "$PYTHON" tests/requirements-sslyze.txt) || exit 2
export SSLYZE="$sslyze/bin/sslyze"

# h2spec comes by Go's own client; without Go its test is skipped, and says so.
if ! command -v h2spec >/dev/null 2>&1 && command -v go >/dev/null 2>&1; then
    GOBIN="$cache/go-bin" go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible || say "h2spec could not be installed"
fi
PATH="$cache/go-bin:$PATH"
export PATH

# The Helm chart: helm and kubeconform, and the schemas of KEDA and the Prometheus Operator, by Go's own client as well.
go_program() {
    [ -x "$cache/go-bin/${1##*/}" ] || GOBIN="$cache/go-bin" go install "$1@$2" || say "$1 could not be installed"
}
go_source() { go mod download -json "$1@$2" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p'; }
if command -v go >/dev/null 2>&1; then
    go_program helm.sh/helm/v3/cmd/helm v3.22.0
    go_program github.com/yannh/kubeconform/cmd/kubeconform v0.8.0
    KEDA_SOURCE=$(go_source github.com/kedacore/keda/v2 v2.21.0)
    PROMETHEUS_OPERATOR_SOURCE=$(go_source github.com/prometheus-operator/prometheus-operator v0.85.0)
    export KEDA_SOURCE PROMETHEUS_OPERATOR_SOURCE
fi

# The OpenTelemetry Collector has no package of its own: its parts come by Go's client, as tests/collector/go.sum pins them.
OTEL_COLLECTOR=$cache/otel-collector-$(cat tests/collector/main.go tests/collector/go.mod tests/collector/go.sum | cksum | tr ' ' '-')
export OTEL_COLLECTOR
if [ ! -x "$OTEL_COLLECTOR" ]; then
    if command -v go >/dev/null 2>&1; then
        say "building the OpenTelemetry Collector of tests/collector, for two minutes or so"
        (cd tests/collector && go build -buildvcs=false -trimpath -ldflags='-s -w' -o "$OTEL_COLLECTOR" .) \
            || say "the OpenTelemetry Collector could not be built; its tests are skipped"
    else
        say "missing: go 1.26 or later, for the tests with the OpenTelemetry Collector"
    fi
fi

# The schemas of Kubernetes are in a Python package, of which nothing else is used.
KUBERNETES_SCHEMAS=$cache/kubernetes_validate-1.37.0-py3-none-any.whl
export KUBERNETES_SCHEMAS
if [ ! -f "$KUBERNETES_SCHEMAS" ]; then
    echo 'kubernetes-validate==1.37.0 --hash=sha256:85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9' >"$results/schemas.txt"
    "$venv/bin/python" -m pip download -q --no-deps --require-hashes -d "$cache" -r "$results/schemas.txt" || exit 2
fi

# The tests of uvicorn are in its source alone; the sum is checked by pip.
uvicorn=uvicorn-0.54.0
UVICORN_SOURCE=$cache/$uvicorn
export UVICORN_SOURCE
if [ ! -d "$UVICORN_SOURCE/tests" ]; then
    echo 'uvicorn==0.54.0 --hash=sha256:a2e33cbfaa0306f8e6b0c13e0cb89d7d7a2da3e62b90c66e18c33d9807b28620' >"$results/uvicorn.txt"
    "$venv/bin/python" -m pip download -q --no-deps --no-binary :all: --require-hashes -d "$results/source" \
        -r "$results/uvicorn.txt" || exit 2
    tar -xzf "$results/source/$uvicorn.tar.gz" -C "$cache" || exit 2
fi

SOCKETIO_CLIENT=$cache/socketio-client-$(cksum <tests/socketio/package-lock.json | tr ' ' '-')
export SOCKETIO_CLIENT
if [ ! -d "$SOCKETIO_CLIENT/node_modules/socket.io-client" ]; then
    mkdir -p "$SOCKETIO_CLIENT"
    cp tests/socketio/package.json tests/socketio/package-lock.json "$SOCKETIO_CLIENT" || exit 2
    npm ci --prefix "$SOCKETIO_CLIENT" --no-audit --no-fund --ignore-scripts --silent || exit 2
fi

MATURIN_PEP517_ARGS="--locked --profile ${MILEPOST_WHEEL_PROFILE:-dev} --features same-libraries" \
    "$venv/bin/python" -m pip wheel -q --no-deps --wheel-dir "$results/wheel" "$root" || exit 2
"$venv/bin/python" -m pip install -q --no-deps --force-reinstall "$results"/wheel/*.whl || exit 2

# From elsewhere: the tests must see the wheel, never the folder python/ of the checkout.
cd / && "$venv/bin/python" -m pytest -c "$root/pyproject.toml" "$root/tests" -m conformance -rs "$@"

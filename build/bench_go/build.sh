#!/usr/bin/env bash
# Builds the Go plugin that `deviceplugin bench --versus` measures ours against. On Debian 12:
#   apt-get install --no-install-recommends golang-go golang-google-grpc-dev protoc-gen-go-1-3 \
#     protobuf-compiler golang-github-fsnotify-fsnotify-dev
# It uses the libraries of these packages, without the network, and generates code beside the binary.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-dist/bench_go}")

tree=$out/gopath/src/bench_go
mkdir -p "$tree/v1beta1"
cp build/bench_go/plugin.go "$tree/"
protoc --proto_path=common/node/src/deviceplugin/proto/v1beta1 \
  --go_out="plugins=grpc,Mdeviceplugin.proto=v1beta1:$tree/v1beta1" deviceplugin.proto
cd "$tree"
GO111MODULE=off GOFLAGS='' CGO_ENABLED=0 GOPATH=$out/gopath:/usr/share/gocode \
  go build -trimpath -ldflags='-s -w' -o "$out/bench-go-plugin" bench_go
ls -l "$out/bench-go-plugin"

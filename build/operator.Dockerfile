# The operator's image, from the root of a checkout:
#
#   docker build --file build/operator.Dockerfile --tag deviceplugin-operator:0.1.0 .
#
# The plugins are in it, because they judge their own settings; and what it applies of deployments/.
# The arguments are those of build/Dockerfile.
ARG BUILD_IMAGE=pinned
ARG BASE_IMAGE=scratch

# Its interpreter and libraries are in every image. Dependabot keeps this line current.
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS pinned

FROM ${BUILD_IMAGE} AS base
ARG BASE_IMAGE
COPY build/python_only.py /build/
RUN mkdir /bare \
 && if [ "${BASE_IMAGE}" = scratch ]; then python3 /build/python_only.py /bare; fi

FROM ${BUILD_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY LICENSE requirements.lock build/locked.py ./
RUN python3 locked.py only hatchling packaging pathspec pluggy pyyaml trove-classifiers \
      < requirements.lock > tools.txt \
 && python3 -m pip install --quiet --require-hashes --no-deps --target /tools -r tools.txt
COPY common/node common/node
COPY plugins plugins
COPY operator operator
COPY deployments deployments
COPY build/kustomize.py build/operator_manifests.py build/
RUN plugins=$(grep -l 'deviceplugin.plugins' plugins/*/pyproject.toml | xargs -n1 dirname) \
 && for package in common/node operator plugins/node ${plugins}; do \
      cp LICENSE $package && (cd $package && PYTHONPATH=/tools python3 -m hatchling build -t wheel -d /wheels) || exit 1; \
    done
RUN python3 locked.py pins < requirements.lock > pins.txt \
 && python3 -m pip install --quiet --dry-run --ignore-installed --report needed.json \
      --constraint pins.txt /wheels/*.whl \
 && python3 locked.py needed needed.json < requirements.lock > needed.txt \
 && python3 -m pip install --quiet --require-hashes --no-deps --only-binary :all: --no-compile \
      --target /opt/operator --report installed.json -r needed.txt \
 && python3 -m pip install --quiet --no-deps --no-index --no-compile \
      --target /opt/operator --upgrade /wheels/*.whl
COPY build/sbom.py build/trim.py ./
RUN rm -rf /opt/operator/bin \
 && python3 sbom.py deviceplugin-operator /opt/operator installed.json > sbom.json \
 && python3 trim.py /opt/operator \
 && mv sbom.json /opt/operator/sbom.cdx.json \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/operator

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY --from=base /bare /
COPY --from=build /opt/operator /opt/operator
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/operator PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.title="deviceplugin-operator" \
      org.opencontainers.image.description="A Kubernetes operator for device plugins" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
# Python itself is process 1, so signals reach it.
ENTRYPOINT ["python3", "-m", "deviceplugin_operator"]

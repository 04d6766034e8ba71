# The reward service's image: no CUDA, no torch. docker/build.sh builds it (docs/operations/kubernetes.md):
#   BASE_IMAGE   docker.io/library/python:3.11-slim-bookworm@sha256:...   no default: look its digest up
#   secret pip-config   a pip.conf, where the package index is not the public one; it does not stay in the image
ARG BASE_IMAGE

FROM ${BASE_IMAGE} AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /build
COPY requirements/serve.txt requirements/
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    pip install --no-deps -r requirements/serve.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY restrain_openrlhf restrain_openrlhf
COPY test_time test_time
COPY configs configs
COPY k8s k8s
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    pip install --no-deps . && pip check && pip freeze > /opt/venv/pip-freeze.txt

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="restrain-openrlhf reward service" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/opt/venv/bin:$PATH
RUN groupadd --gid 10001 restrain \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp restrain
COPY --from=builder /opt/venv /opt/venv
WORKDIR /tmp
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["restrain", "serve"]
CMD ["--help"]

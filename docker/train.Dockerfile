# The training image: every job but the reward service. docker/build.sh builds it (docs/operations/kubernetes.md). Two targets:
#   slim   the default: no CUDA toolkit. The driver comes from the node, CUDA's libraries from the lock's wheels; attention is
#          sdpa, the optimizer torch's fused AdamW.
#   full   with nvcc and flash-attn, for packing and flash_attention_2.
#   BASE_IMAGE   slim: docker.io/library/ubuntu:24.04@sha256:...   no default: look its digest up, do not trust ours
#                full: docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04@sha256:...
#   secret pip-config   a pip.conf, where the package index is not the public one; it does not stay in the image
ARG BASE_IMAGE

FROM ${BASE_IMAGE} AS builder
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    UV_PYTHON_INSTALL_DIR=/opt/python UV_NO_CACHE=1
# The base is pinned by digest, its distribution's packages are security updates of it.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ libnuma1 python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
# uv verifies the interpreter it downloads against a checksum of its own. Ubuntu's own environment takes no packages.
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    python3 -m venv /opt/uv \
    && /opt/uv/bin/pip install uv==0.13.9 \
    && /opt/uv/bin/uv python install 3.11 \
    && /opt/uv/bin/uv venv --seed --python 3.11 /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /build
COPY requirements/gpu.txt requirements/
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    pip install --no-deps --use-pep517 -r requirements/gpu.txt

# The project itself comes last, so that a change of it builds nothing else anew.
FROM builder AS slim-venv
COPY pyproject.toml setup.py README.md LICENSE ./
COPY tools/lock.py tools/
COPY restrain_openrlhf restrain_openrlhf
COPY test_time test_time
COPY configs configs
COPY k8s k8s
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    pip install --no-deps . \
    && python tools/lock.py check gpu \
    && pip freeze > /opt/venv/pip-freeze.txt

FROM builder AS full-builder
ENV CUDA_HOME=/usr/local/cuda
# The longest step, hours on few cores: no wheel fits this torch. 8.0 is A100, 9.0 is H100 and H200.
ARG MAX_JOBS=8
ENV TORCH_CUDA_ARCH_LIST="8.0;9.0" FLASH_ATTN_CUDA_ARCHS="80;90"
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    MAX_JOBS=${MAX_JOBS} FLASH_ATTENTION_FORCE_BUILD=TRUE \
    pip install --no-deps --no-build-isolation flash-attn==2.8.3

FROM full-builder AS full-venv
COPY pyproject.toml setup.py README.md LICENSE ./
COPY tools/lock.py tools/
COPY restrain_openrlhf restrain_openrlhf
COPY test_time test_time
COPY configs configs
COPY k8s k8s
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    pip install --no-deps . \
    && python tools/lock.py check gpu \
    && pip freeze > /opt/venv/pip-freeze.txt

FROM ${BASE_IMAGE} AS runtime
# What NVIDIA's container runtime reads: without it a plain base gets no driver.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV DEBIAN_FRONTEND=noninteractive PYTHONUNBUFFERED=1 PATH=/opt/venv/bin:$PATH
# g++ is for Triton and torch, which compile a launcher while they run; wget is for the health checks of KubeRay before 1.7,
# which call it in the container.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ ibverbs-providers libibverbs1 libnuma1 wget \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 restrain \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /cache/home restrain
COPY --from=builder /opt/python /opt/python
WORKDIR /mnt/work

# DeepSpeed and FlashInfer compile kernels while they run where nvcc is there.
FROM runtime AS full
LABEL org.opencontainers.image.title="restrain-openrlhf training, with flash-attn" \
      org.opencontainers.image.licenses="Apache-2.0" \
      io.ray.version="2.55.0"
ENV CUDA_HOME=/usr/local/cuda
COPY --from=full-venv /opt/venv /opt/venv
USER 10001:10001
CMD ["restrain", "--help"]

FROM runtime AS slim
LABEL org.opencontainers.image.title="restrain-openrlhf training" \
      org.opencontainers.image.licenses="Apache-2.0" \
      io.ray.version="2.55.0"
COPY --from=slim-venv /opt/venv /opt/venv
USER 10001:10001
CMD ["restrain", "--help"]

# Pagewalk and the QEMU that runs programs of your own. First build the wheel:
#
#   make wheel
#   docker build -t pagewalk .
#   docker run --rm pagewalk compare --workload gups --size 1GiB
FROM docker.io/library/debian:12-slim
# The wheel, if `dist` has several.
ARG WHEEL=dist/*.whl
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv qemu-user \
    && rm -rf /var/lib/apt/lists/*
COPY ${WHEEL} /tmp/wheel/
RUN python3 -m venv /opt/pagewalk \
    && /opt/pagewalk/bin/pip install --no-cache-dir /tmp/wheel/*.whl \
    && rm -r /tmp/wheel
ENV PATH=/opt/pagewalk/bin:$PATH LANG=C.UTF-8
RUN useradd --create-home pagewalk && pagewalk doctor
USER pagewalk
WORKDIR /home/pagewalk
ENTRYPOINT ["pagewalk"]
CMD ["--help"]

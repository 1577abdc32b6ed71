"""Messages of the certification call; generated, but for these two names."""

SERVICE = "io.linkerd.proxy.identity.Identity"
CERTIFY = f"/{SERVICE}/Certify"

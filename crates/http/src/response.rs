//! Response to an HTTP request, and its encoding.

/// Media type of plain text.
pub(crate) const TEXT_MEDIA_TYPE: &str = "text/plain; charset=utf-8";

/// Media type of metrics (`OpenMetrics` 1.0.0, section "Overall structure").
const OPEN_METRICS_MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Media type of JSON (RFC 8259, section 11).
const JSON_MEDIA_TYPE: &str = "application/json";

/// Media type of HTML.
const HTML_MEDIA_TYPE: &str = "text/html; charset=utf-8";

/// Content Security Policy of an HTML page: it may use its own inline content and send requests to
/// its own origin. No page may show it in a frame.
const HTML_SECURITY_POLICY: &str = "Content-Security-Policy: default-src 'none'; \
                           style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                           connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'\r\n";

/// Response to one HTTP request: status code, media type and body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpResponse {
    /// Status code (RFC 9110, section 15).
    pub code: u16,
    /// Media type of the body.
    pub media_type: &'static str,
    /// Body of the response.
    pub body: String,
}

impl HttpResponse {
    /// Creates a response of plain text with this status code, such as a refusal.
    #[must_use]
    pub fn text(code: u16, body: impl Into<String>) -> Self {
        Self { code, media_type: TEXT_MEDIA_TYPE, body: body.into() }
    }

    /// Creates a response of metrics in the `OpenMetrics` format, with status 200.
    #[must_use]
    pub fn open_metrics(body: String) -> Self {
        Self { code: 200, media_type: OPEN_METRICS_MEDIA_TYPE, body }
    }

    /// Creates a response of JSON, with status 200.
    #[must_use]
    pub const fn json(body: String) -> Self {
        Self { code: 200, media_type: JSON_MEDIA_TYPE, body }
    }

    /// Creates a response of an HTML page, with status 200. The page may load nothing from other
    /// origins, and sends no referrer.
    #[must_use]
    pub const fn html(body: String) -> Self {
        Self { code: 200, media_type: HTML_MEDIA_TYPE, body }
    }

    /// Encodes the response. Without the body, it is the response to a HEAD request. The reason
    /// phrase of a status code not used here is "Internal Server Error".
    pub(crate) fn to_bytes(&self, with_body: bool) -> Vec<u8> {
        let Self { code, media_type: kind, body } = self;
        let reason = match code {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            404 => "Not Found",
            405 => "Method Not Allowed",
            421 => "Misdirected Request",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
        // RFC 9110, section 11.6.1: a 401 response states the required authentication.
        let challenge = if *code == 401 { "WWW-Authenticate: Bearer\r\n" } else { "" };
        let policy = if *kind == HTML_MEDIA_TYPE { HTML_SECURITY_POLICY } else { "" };
        let mut text = format!(
            "HTTP/1.0 {code} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{challenge}\
             {policy}X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            body.len()
        );
        if with_body {
            text.push_str(body);
        }
        text.into_bytes()
    }
}

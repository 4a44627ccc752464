//! Response to a request, and its bytes.

/// The media type of plain text.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// The media type of metrics (`OpenMetrics` 1.0.0, section "Overall structure").
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of JSON (RFC 8259, section 11).
const JSON: &str = "application/json";

/// The media type of a page for a browser.
const HTML: &str = "text/html; charset=utf-8";

/// Permissions of a page in a browser: its own inline content, and requests to its origin. No other
/// page may frame it.
const HTML_POLICY: &str = "Content-Security-Policy: default-src 'none'; \
                           style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                           connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'\r\n";

/// Response to one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpResponse {
    /// The status code (RFC 9110, section 15).
    pub code: u16,
    /// The media type.
    pub kind: &'static str,
    /// The bytes after the header.
    pub body: String,
}

impl HttpResponse {
    /// A refusal, or another page of plain text.
    #[must_use]
    pub fn text(code: u16, body: impl Into<String>) -> Self {
        Self { code, kind: TEXT, body: body.into() }
    }

    /// A page of metrics.
    #[must_use]
    pub fn open_metrics(body: String) -> Self {
        Self { code: 200, kind: OPEN_METRICS, body }
    }

    /// JSON data.
    #[must_use]
    pub const fn json(body: String) -> Self {
        Self { code: 200, kind: JSON, body }
    }

    /// A page for a browser, which loads nothing from other origins and sends no referrer.
    #[must_use]
    pub const fn html(body: String) -> Self {
        Self { code: 200, kind: HTML, body }
    }

    /// The response as sent. A HEAD request gets the header alone.
    pub(crate) fn to_bytes(&self, with_body: bool) -> Vec<u8> {
        let Self { code, kind, body } = self;
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
        let policy = if *kind == HTML { HTML_POLICY } else { "" };
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

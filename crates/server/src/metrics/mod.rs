//! Metrics endpoint: `GET /metrics` in the text format of `OpenMetrics`, `GET /healthz` for load
//! balancers that only need the health of the server. It is off by default and accepts no commands.

mod histogram;
mod render;

use horolog_sys::explain::explain;
use std::io;
use std::net::{SocketAddr, TcpListener};

use horolog_http::{HttpRequest, HttpResponder, HttpResponse};

use crate::Status;

pub use render::metric_names;

/// Reason for which metrics are unavailable.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {0} for metrics: {why}; choose another address with --metrics \
         ADDR:PORT", why = explain(.1))]
pub struct MetricsError(pub SocketAddr, #[source] pub io::Error);

/// Answers at the address, if any, with the result of `status`, and for the metrics with that of
/// `whole_status`.
pub(crate) fn start(
    address: Option<SocketAddr>,
    (status, whole_status): (
        impl Fn() -> Status + Send + 'static,
        impl Fn() -> Status + Send + 'static,
    ),
) -> Result<Option<HttpResponder>, MetricsError> {
    let Some(address) = address else { return Ok(None) };
    let answer = move |request: &HttpRequest<'_>| answer(request.path, &status, &whole_status);
    let started = TcpListener::bind(address)
        .and_then(|listener| HttpResponder::start("metrics", listener, answer));
    started.map(Some).map_err(|error| MetricsError(address, error))
}

/// Returns the response to a request for `path`, from the state returned by `status` or, with the
/// number of clients, which takes longer, by `whole_status`.
pub(crate) fn answer(
    path: &str,
    status: impl FnOnce() -> Status,
    whole_status: impl FnOnce() -> Status,
) -> HttpResponse {
    match path {
        "/metrics" => match serde_json::to_value(whole_status()) {
            Ok(value) => HttpResponse::open_metrics(render::text(&value)),
            Err(error) => HttpResponse::text(500, format!("{error}\n")),
        },
        "/healthz" => health(&status()),
        _ => HttpResponse::text(404, "not found: choose /metrics or /healthz\n"),
    }
}

fn health(status: &Status) -> HttpResponse {
    let reason = if status.page_expired {
        "the clock page has expired; no request is answered"
    } else if status.synchronised {
        return HttpResponse::text(200, "ok\n");
    } else {
        "the clock is not synchronised, which all replies report"
    };
    HttpResponse::text(503, format!("{reason}\n"))
}

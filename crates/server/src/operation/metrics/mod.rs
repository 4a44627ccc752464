//! HTTP endpoint for monitoring: `GET /metrics` in `OpenMetrics` text format, and `GET /healthz`
//! for load balancers that need only the health of the server. It is off by default and accepts no
//! commands.

mod render;

use horolog_sys::explain::explain;
use std::io;
use std::net::{SocketAddr, TcpListener};

use horolog_http::{HttpRequest, HttpResponder, HttpResponse};

use crate::operation::server_status::ServerStatus;

pub use render::metric_names;

/// Failure to listen for metrics requests.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {0} for metrics: {why}; choose another address with --metrics \
         ADDR:PORT", why = explain(.1))]
pub struct MetricsError(pub SocketAddr, #[source] pub io::Error);

/// Starts the endpoint at the address, if there is one. Metrics are made from
/// `status_with_clients`, and the health from `status`.
pub(crate) fn start(
    address: Option<SocketAddr>,
    (status, status_with_clients): (
        impl Fn() -> ServerStatus + Send + 'static,
        impl Fn() -> ServerStatus + Send + 'static,
    ),
) -> Result<Option<HttpResponder>, MetricsError> {
    let Some(address) = address else { return Ok(None) };
    let answer =
        move |request: &HttpRequest<'_>| respond(request.path, &status, &status_with_clients);
    let started = TcpListener::bind(address)
        .and_then(|listener| HttpResponder::start("metrics", listener, answer));
    started.map(Some).map_err(|error| MetricsError(address, error))
}

/// Returns the response to a request for `path`: the metrics from `status_with_clients`, which
/// takes longer because it counts clients, and the health from `status`.
pub(crate) fn respond(
    path: &str,
    status: impl FnOnce() -> ServerStatus,
    status_with_clients: impl FnOnce() -> ServerStatus,
) -> HttpResponse {
    match path {
        "/metrics" => HttpResponse::open_metrics(render::render_status(&status_with_clients())),
        "/healthz" => health(&status()),
        _ => HttpResponse::text(404, "not found: choose /metrics or /healthz\n"),
    }
}

fn health(status: &ServerStatus) -> HttpResponse {
    let reason = if status.page_expired {
        "the clock page has expired; no request is answered"
    } else if status.synchronised {
        return HttpResponse::text(200, "ok\n");
    } else {
        "the clock is not synchronised, which all replies report"
    };
    HttpResponse::text(503, format!("{reason}\n"))
}

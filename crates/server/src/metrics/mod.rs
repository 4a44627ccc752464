//! The metrics endpoint: `GET /metrics` in the text form of `OpenMetrics`, `GET /healthz` for those
//! that only want to know whether to send clients here. It is off unless asked for, and takes no
//! commands.

mod histogram;
mod render;

use std::io;
use std::net::{SocketAddr, TcpListener};

use horolog_http::{Answer, Request, Responder};

use crate::Status;

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
#[error("cannot answer at {0} for metrics: {1}; choose another with --metrics ADDR:PORT")]
pub struct MetricsError(pub SocketAddr, #[source] pub io::Error);

/// Answers there, if anywhere, with what `status` tells, and for the metrics with what
/// `whole_status` does.
pub(crate) fn start(
    address: Option<SocketAddr>,
    (status, whole_status): (
        impl Fn() -> Status + Send + 'static,
        impl Fn() -> Status + Send + 'static,
    ),
) -> Result<Option<Responder>, MetricsError> {
    let Some(address) = address else { return Ok(None) };
    let answer = move |request: &Request<'_>| answer(request.path, &status, &whole_status);
    let started = TcpListener::bind(address)
        .and_then(|listener| Responder::start("metrics", listener, answer));
    started.map(Some).map_err(|error| MetricsError(address, error))
}

/// What is answered to a request for `path` by a server in the state that `status` tells, and
/// `whole_status` with the clients counted, which takes longer.
pub(crate) fn answer(
    path: &str,
    status: impl FnOnce() -> Status,
    whole_status: impl FnOnce() -> Status,
) -> Answer {
    match path {
        "/metrics" => match serde_json::to_value(whole_status()) {
            Ok(value) => Answer::open_metrics(render::text(&value)),
            Err(error) => Answer::text(500, format!("{error}\n")),
        },
        "/healthz" => health(&status()),
        _ => Answer::text(404, "there are /metrics and /healthz\n"),
    }
}

fn health(status: &Status) -> Answer {
    let reason = if status.page_expired {
        "the clock page has expired; nothing is answered"
    } else if status.synchronised {
        return Answer::text(200, "ok\n");
    } else {
        "the clock is not synchronised, and all replies say so"
    };
    Answer::text(503, format!("{reason}\n"))
}

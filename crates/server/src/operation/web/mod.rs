//! Live page of a running server: the HTML page, its data as JSON, and the metrics. Once a second a
//! thread takes a snapshot of the status. The latest snapshots are stored, so that the page shows
//! recent history when it is opened. It accepts no commands.

mod snapshot;
mod warnings;

use horolog_sys::explain::explain;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use horolog_http::{
    AccessPolicy, BearerToken, BearerTokenError, HttpRequest, HttpResponder, HttpResponse,
};
use horolog_record::{LIVE_SCHEMA, RecentItems, SNAPSHOTS_MAX};
use serde::Serialize;
use serde_json::Value;

use self::snapshot::ServerSnapshot;
use self::warnings::{ServerWarning, warnings};
use crate::config::ServerLivePageConfig;
use crate::operation::metrics;
use crate::operation::server_status::ServerStatus;
use crate::periodic::PeriodicThread;

/// Interval between snapshots.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// Reason for which the live page is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum ServerLivePageError {
    /// Address that cannot be bound.
    #[error("cannot serve the live page at {0}: {why}; choose another address with \
        --web=ADDR:PORT", why = explain(.1))]
    Bind(SocketAddr, #[source] io::Error),
    /// Unavailable token.
    #[error(transparent)]
    Token(#[from] BearerTokenError),
}

/// Live page with a bound listener and a loaded token, before it is served.
#[derive(Debug)]
pub(crate) struct BoundServerLivePage {
    listener: TcpListener,
    guard: AccessPolicy,
    page: String,
}

/// Live page that is served. Dropping it stops its threads.
#[derive(Debug)]
pub(crate) struct ServerLivePage {
    responder: HttpResponder,
    sampling: PeriodicThread,
}

/// Latest snapshots, and the status at the last one.
#[derive(Debug)]
struct SnapshotHistory {
    snapshots: RecentItems<ServerSnapshot>,
    status: ServerStatus,
}

/// JSON data for the live page: the snapshots that it lacks, the status and the warnings.
#[derive(Serialize)]
struct ServerLivePayload<'a> {
    schema: &'static str,
    kind: &'static str,
    title: String,
    state: &'static str,
    lead: &'static str,
    first: u64,
    next: u64,
    snapshots: Vec<&'a ServerSnapshot>,
    status: Value,
    findings: Vec<ServerWarning>,
}

impl ServerLivePage {
    /// Binds the listener and loads the token, if the live page is configured.
    pub(crate) fn open(
        config: Option<&ServerLivePageConfig>,
    ) -> Result<Option<BoundServerLivePage>, ServerLivePageError> {
        let Some(config) = config else { return Ok(None) };
        let token = config.token_file.as_deref().map(BearerToken::load).transpose()?;
        let failed = |error| ServerLivePageError::Bind(config.address, error);
        let listener = TcpListener::bind(config.address).map_err(failed)?;
        Ok(Some(BoundServerLivePage {
            listener,
            guard: AccessPolicy::new(token),
            page: config.page.clone(),
        }))
    }

    /// Returns true if one of its threads has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.responder.has_failed() || self.sampling.has_died()
    }
}

/// Serves the live page, if it was opened. The functions return the status without and with the
/// numbers of stored clients.
pub(crate) fn start(
    opened: Option<BoundServerLivePage>,
    (status, status_with_clients): (
        impl Fn() -> ServerStatus + Send + 'static,
        impl Fn() -> ServerStatus + Send + 'static,
    ),
) -> io::Result<Option<ServerLivePage>> {
    opened.map(|opened| opened.start(status, status_with_clients)).transpose()
}

impl BoundServerLivePage {
    /// Serves the page. `status` is called once a second; `status_with_clients`, which also counts
    /// clients, is called for the metrics.
    fn start(
        self,
        status: impl Fn() -> ServerStatus + Send + 'static,
        status_with_clients: impl Fn() -> ServerStatus + Send + 'static,
    ) -> io::Result<ServerLivePage> {
        let Self { listener, guard, page } = self;
        let history = Arc::new(Mutex::new(SnapshotHistory::new(SNAPSHOTS_MAX, status())));
        let (taken, published) = (Arc::clone(&history), history);
        let push_snapshot = move || {
            // Before locking, so that requests do not wait for the status.
            let status = status();
            lock_history(&taken).push_status(status);
        };
        let sampling = PeriodicThread::start("web-sampler", SNAPSHOT_INTERVAL, || push_snapshot)?;
        let answer = move |request: &HttpRequest<'_>| {
            respond(request, &guard, &page, &published, &status_with_clients)
        };
        let responder = HttpResponder::start("web", listener, answer)?;
        Ok(ServerLivePage { responder, sampling })
    }
}

fn lock_history(history: &Mutex<SnapshotHistory>) -> MutexGuard<'_, SnapshotHistory> {
    // The history stays consistent even if a thread panics while it holds the lock.
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

fn respond(
    request: &HttpRequest<'_>,
    guard: &AccessPolicy,
    page: &str,
    history: &Mutex<SnapshotHistory>,
    status_with_clients: &dyn Fn() -> ServerStatus,
) -> HttpResponse {
    if let Some(refusal) = guard.refusal(request) {
        return refusal;
    }
    let since = request.parameter("since").and_then(|number| number.parse().ok()).unwrap_or(0);
    match request.path {
        "/" => HttpResponse::html(page.to_owned()),
        "/live.json" => HttpResponse::json(lock_history(history).to_json(since)),
        "/metrics" | "/healthz" => {
            metrics::respond(request.path, status_with_clients, status_with_clients)
        }
        _ => HttpResponse::text(
            404,
            "not found; available: /, /live.json, /metrics and \
            /healthz\n",
        ),
    }
}

impl SnapshotHistory {
    /// Creates a history of at most `length` snapshots, with one of the first status.
    fn new(length: usize, status: ServerStatus) -> Self {
        let mut snapshots = RecentItems::new(length);
        snapshots.push(ServerSnapshot::from_status(None, &status));
        Self { snapshots, status }
    }

    fn push_status(&mut self, status: ServerStatus) {
        let earlier = self.snapshots.last().map(|snapshot| (snapshot, &self.status));
        let snapshot = ServerSnapshot::from_status(earlier, &status);
        self.snapshots.push(snapshot);
        self.status = status;
    }

    fn to_json(&self, since: u64) -> String {
        let status = &self.status;
        let (first, snapshots) = self.snapshots.since(since);
        let listen: Vec<_> = status.listen.iter().map(ToString::to_string).collect();
        let lead = match (status.page_expired, status.synchronised) {
            (true, _) => "Not answering: clock page expired",
            (_, true) => "Synchronised",
            _ => "Not synchronised",
        };
        let payload = ServerLivePayload {
            schema: LIVE_SCHEMA,
            kind: "serve",
            title: format!("{} by {}", listen.join(", "), status.engine),
            state: "running",
            lead,
            first,
            next: self.snapshots.next(),
            snapshots: snapshots.collect(),
            status: status.to_json(),
            findings: warnings(status),
        };
        // Numbers, texts and lists of them under string keys always serialise.
        serde_json::to_string(&payload).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operation::server_status::tests::sample;

    #[test]
    fn snapshots_are_sent_from_a_number_on_with_the_last_state() {
        let status = |received: u64| {
            let mut status = ServerStatus { uptime_s: received as f64 / 10.0, ..sample() };
            status.counters.received = received;
            status
        };
        let mut history = SnapshotHistory::new(2, status(0));
        history.push_status(status(10));
        history.push_status(status(30));
        let payload: Value = serde_json::from_str(&history.to_json(0)).unwrap();
        assert_eq!((&payload["first"], &payload["next"]), (&json!(1), &json!(3)));
        assert_eq!(payload["title"], "192.0.2.1:123, [2001:db8::1]:123 by xdp");
        assert_eq!(payload["snapshots"][1]["requests"], 30 + 139);
        assert_eq!(payload["snapshots"][1]["request_rate"], 10.0);
        assert_eq!(payload["status"]["counters"]["received"], 30);
        assert_eq!(payload["lead"], "Synchronised");
        assert_eq!(payload["findings"][0]["severity"], "warning");
    }
}

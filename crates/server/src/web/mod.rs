//! The live page of a running server: the page itself, what it shows as JSON, and the metrics. Once
//! a second a thread looks at the same state that the status socket and the metrics tell, and the
//! latest looks are kept, so that who opens the page sees what has been. It takes no commands.

mod doubts;
mod look;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use horolog_http::{Answer, Guard, Request, Responder, Token, TokenError};
use horolog_record::{LIVE_SCHEMA, LOOKS_MAX, Ring};
use serde::Serialize;
use serde_json::Value;

use self::doubts::{Doubt, doubts};
use self::look::Look;
use crate::config::WebConfig;
use crate::periodic::Periodic;
use crate::{Status, metrics};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Why there is no live page.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// It cannot be answered there.
    #[error("cannot answer at {0} for the live page: {1}; choose another with --web=ADDR:PORT")]
    Bind(SocketAddr, #[source] io::Error),
    /// There is no token.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// A page that will be answered: what takes rights is done.
#[derive(Debug)]
pub(crate) struct Opened {
    listener: TcpListener,
    guard: Guard,
    page: String,
}

/// A page that is answered, until it is dropped.
#[derive(Debug)]
pub(crate) struct Web {
    responder: Responder,
    looking: Periodic,
}

/// The latest looks, and the last state that was looked at.
#[derive(Debug)]
struct Kept {
    looks: Ring<Look>,
    status: Value,
}

/// What the page is told.
#[derive(Serialize)]
struct Told<'a> {
    schema: &'static str,
    kind: &'static str,
    title: String,
    state: &'static str,
    lead: &'static str,
    first: u64,
    next: u64,
    looks: Vec<&'a Look>,
    status: &'a Value,
    findings: Vec<Doubt>,
}

impl Web {
    /// Opens what was asked for.
    pub(crate) fn open(config: Option<&WebConfig>) -> Result<Option<Opened>, WebError> {
        let Some(config) = config else { return Ok(None) };
        let token = config.token_file.as_deref().map(Token::load).transpose()?;
        let failed = |error| WebError::Bind(config.address, error);
        let listener = TcpListener::bind(config.address).map_err(failed)?;
        Ok(Some(Opened { listener, guard: Guard::new(token), page: config.page.clone() }))
    }

    /// Whether a thread of it has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.responder.has_died() || self.looking.has_died()
    }
}

/// Answers what was opened, if anything was.
pub(crate) fn start(
    opened: Option<Opened>,
    (status, whole_status): (
        impl Fn() -> Status + Send + 'static,
        impl Fn() -> Status + Send + 'static,
    ),
) -> io::Result<Option<Web>> {
    opened.map(|opened| opened.start(status, whole_status)).transpose()
}

impl Opened {
    /// Answers from now on; `status` is looked at once a second, and `whole_status` is the same
    /// with the clients counted, for the metrics.
    fn start(
        self,
        status: impl Fn() -> Status + Send + 'static,
        whole_status: impl Fn() -> Status + Send + 'static,
    ) -> io::Result<Web> {
        let Self { listener, guard, page } = self;
        let kept = Arc::new(Mutex::new(Kept { looks: Ring::new(LOOKS_MAX), status: Value::Null }));
        let (taken, told) = (Arc::clone(&kept), kept);
        let begin = move || {
            entered(&taken).take(value(&status()));
            move || {
                // Outside of the lock: whoever asks does not wait for it.
                let status = value(&status());
                entered(&taken).take(status);
            }
        };
        let looking = Periodic::start("web-looks", EVERY, begin)?;
        let answer =
            move |request: &Request<'_>| answer(request, &guard, &page, &told, &whole_status);
        let responder = Responder::start("web", listener, answer)?;
        Ok(Web { responder, looking })
    }
}

fn entered(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    // Whole between any two of its own operations.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A state as all those take it who show it.
fn value(status: &Status) -> Value {
    // Numbers and lists of numbers under string keys always serialise.
    serde_json::to_value(status).unwrap_or_default()
}

fn answer(
    request: &Request<'_>,
    guard: &Guard,
    page: &str,
    kept: &Mutex<Kept>,
    whole_status: &dyn Fn() -> Status,
) -> Answer {
    if let Some(refusal) = guard.refusal(request) {
        return refusal;
    }
    let since = request.parameter("since").and_then(|number| number.parse().ok()).unwrap_or(0);
    match request.path {
        "/" => Answer::html(page.to_owned()),
        "/live.json" => Answer::json(entered(kept).to_json(since)),
        "/metrics" | "/healthz" => metrics::answer(request.path, whole_status, whole_status),
        _ => Answer::text(404, "there are /, /live.json, /metrics and /healthz\n"),
    }
}

impl Kept {
    fn take(&mut self, status: Value) {
        let look = Look::of(self.looks.last(), &self.status, &status);
        self.looks.push(look);
        self.status = status;
    }

    fn to_json(&self, since: u64) -> String {
        let (first, looks) = self.looks.since(since);
        let listen = self.status["listen"].as_array().cloned().unwrap_or_default();
        let listen: Vec<_> = listen.iter().filter_map(Value::as_str).collect();
        let engine = self.status["engine"].as_str().unwrap_or_default();
        let lead =
            match (self.status["page_expired"].as_bool(), self.status["synchronised"].as_bool()) {
                (Some(true), _) => "Silent: the clock page has expired",
                (_, Some(true)) => "Synchronised",
                _ => "Not synchronised",
            };
        let told = Told {
            schema: LIVE_SCHEMA,
            kind: "serve",
            title: format!("{} by {engine}", listen.join(", ")),
            state: "running",
            lead,
            first,
            next: self.looks.next(),
            looks: looks.collect(),
            status: &self.status,
            findings: doubts(&self.status),
        };
        // Numbers, texts and lists of them under string keys always serialise.
        serde_json::to_string(&told).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn looks_are_told_from_a_number_on_with_the_last_state() {
        let mut kept = Kept { looks: Ring::new(2), status: Value::Null };
        for received in [0_u64, 10, 30] {
            let uptime_s = received as f64 / 10.0;
            kept.take(json!({
                "uptime_s": uptime_s, "listen": ["192.0.2.1:123"], "engine": "socket",
                "synchronised": true, "counters": { "received": received, "answered": received },
            }));
        }
        let told: Value = serde_json::from_str(&kept.to_json(0)).unwrap();
        assert_eq!((&told["first"], &told["next"]), (&json!(1), &json!(3)));
        assert_eq!(told["title"], "192.0.2.1:123 by socket");
        assert_eq!(told["looks"][1]["requests"], 30);
        assert_eq!(told["looks"][1]["request_rate"], 10.0);
        assert_eq!(told["status"]["counters"]["received"], 30);
        assert_eq!((&told["lead"], &told["findings"]), (&json!("Synchronised"), &json!([])));
    }
}

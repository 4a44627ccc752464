//! Web server of the live page of a run (`--web`): its flags, access policy and responses.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use horolog_http::{AccessPolicy, BearerToken, HttpRequest, HttpResponder, HttpResponse};
use horolog_report::html::{LivePageKind, live};
use horolog_report::load_metrics;

use super::LiveFeed;
use crate::failure::CommandFailure;
use crate::output;
use crate::values;

/// Interval of the check for Ctrl-C while the page is served after the run.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Access to the live page of a run.
#[derive(Args, Debug)]
pub(crate) struct LivePageArgs {
    /// Serve a live page of the run on this address, with its values as JSON at /live.json and as
    /// Prometheus metrics at /metrics [default without an address: 127.0.0.1:9124].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address,
          num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9124")]
    web: Option<SocketAddr>,
    /// File with the token that clients must present: a line of at least 16 bytes, readable by its
    /// owner only. Required for --web on an address that is not loopback.
    #[arg(long, value_name = "FILE", requires = "web")]
    web_token_file: Option<PathBuf>,
    /// Time for which the page is still served after the run, to read its last values, unless
    /// Ctrl-C ends it [default: 0s].
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "web")]
    web_linger: Option<Duration>,
}

/// Running web server of the live page; dropping it stops the server.
pub(crate) struct LivePageServer {
    _responder: HttpResponder,
    linger: Duration,
}

/// Listening socket and access policy of the live page, opened before the run.
pub(crate) struct BoundLivePageServer {
    listener: TcpListener,
    access_policy: AccessPolicy,
    linger: Duration,
}

impl LivePageArgs {
    /// Reads the token and binds the address, so that errors are found before the run. `None`
    /// without `--web`.
    pub(crate) fn open(&self) -> Result<Option<BoundLivePageServer>, CommandFailure> {
        let Some(address) = self.web else { return Ok(None) };
        let token = self.web_token_file.as_deref().map(BearerToken::load).transpose();
        let guard = AccessPolicy::new(token.map_err(CommandFailure::usage)?);
        if !guard.allows_address(address) {
            return Err(CommandFailure::usage(format!(
                "--web={address} is reachable from other hosts; add --web-token-file FILE or use \
                 an address such as 127.0.0.1:{}",
                address.port()
            )));
        }
        let listener = TcpListener::bind(address).map_err(|error| {
            CommandFailure::environment(format!(
                "cannot serve the live page at {address}: {error}; choose another address with \
                    --web=ADDR:PORT"
            ))
        })?;
        Ok(Some(BoundLivePageServer {
            listener,
            access_policy: guard,
            linger: self.web_linger.unwrap_or_default(),
        }))
    }
}

impl BoundLivePageServer {
    /// Starts a thread that serves the live values of `feed`, and prints the URL on standard error.
    pub(crate) fn start(self, feed: LiveFeed) -> Result<LivePageServer, CommandFailure> {
        let Self { listener, access_policy: guard, linger } = self;
        let address = listener.local_addr().map_err(CommandFailure::environment)?;
        let needs_token = !AccessPolicy::default().allows_address(address);
        let respond = move |request: &HttpRequest<'_>| handle_request(request, &guard, &feed);
        let responder =
            HttpResponder::start("web", listener, respond).map_err(CommandFailure::environment)?;
        let token_hint = if needs_token { " (open it with ?token=TOKEN)" } else { "" };
        output::print_note(&format!("horolog: live page at http://{address}/{token_hint}"));
        Ok(LivePageServer { _responder: responder, linger })
    }
}

impl LivePageServer {
    /// Serves the page for the time of `--web-linger` after the run, or until Ctrl-C.
    pub(crate) fn finish(self) {
        let until = Instant::now() + self.linger;
        while Instant::now() < until && output::check_stop_request().is_continue() {
            thread::sleep(POLL_INTERVAL.min(self.linger));
        }
    }
}

fn handle_request(
    request: &HttpRequest<'_>,
    access_policy: &AccessPolicy,
    feed: &LiveFeed,
) -> HttpResponse {
    if let Some(refusal) = access_policy.refusal(request) {
        return refusal;
    }
    let since = request.parameter("since").and_then(|number| number.parse().ok()).unwrap_or(0);
    match request.path {
        "/" => HttpResponse::html(live(LivePageKind::Load)),
        "/live.json" => HttpResponse::json(feed.lock_run().to_json(since)),
        "/metrics" => HttpResponse::open_metrics(load_metrics(&feed.lock_run())),
        _ => HttpResponse::text(404, "not found; available: /, /live.json and /metrics\n"),
    }
}

#[cfg(test)]
mod tests {
    use horolog_http::respond;
    use horolog_record::{LiveCounts, LiveRun, RequestValues, Snapshot};

    use super::*;

    fn response_to(target: &str) -> String {
        let feed = LiveFeed::new(LiveRun::new("load", "a server".to_owned(), "trial"));
        for sent in 0..3 {
            let counts = LiveCounts { sent, ..LiveCounts::default() };
            let values = RequestValues { counts, ..RequestValues::default() };
            feed.push(Snapshot { values, ..Snapshot::default() });
        }
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let reply = respond(request.as_bytes(), &|request| {
            handle_request(request, &AccessPolicy::default(), &feed)
        });
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn the_page_its_figures_and_the_metrics_are_answered() {
        let page = response_to("/");
        assert!(page.starts_with("HTTP/1.0 200") && page.contains("<!doctype html>"), "{page}");
        assert!(page.contains("frame-ancestors 'none'"));
        for (since, snapshots) in [("", 3), ("?since=2", 1), ("?since=9", 0), ("?since=x", 3)] {
            let response = response_to(&format!("/live.json{since}"));
            let (_, body) = response.split_once("\r\n\r\n").unwrap();
            let document: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(document["snapshots"].as_array().unwrap().len(), snapshots, "{since}");
        }
        assert!(response_to("/metrics").contains("horolog_load_sent_total 2\n"));
        assert!(response_to("/nothing").starts_with("HTTP/1.0 404"));
    }
}

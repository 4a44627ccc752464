//! The live page of a run: who may see it, and what is answered. It is answered by a thread of its
//! own, in small bounds of time, memory and connections.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use horolog_http::{Answer, Guard, Request, Responder, Token};
use horolog_report::html::{Live, live};
use horolog_report::load_metrics;

use super::Feed;
use crate::failure::Failure;
use crate::output;
use crate::values;

/// How often is looked whether somebody wants the end.
const LOOK: Duration = Duration::from_millis(100);

/// Who may see a run in a browser.
#[derive(Args, Debug)]
pub(crate) struct WebArgs {
    /// Answer a live page of the run there, its figures as JSON at /live.json and as Prometheus
    /// metrics at /metrics [default where no address is given: 127.0.0.1:9124].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address,
          num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9124")]
    web: Option<SocketAddr>,
    /// File with the token that has to be shown, a line of at least 16 bytes, closed to others:
    /// needed for --web at an address that is not of this machine alone.
    #[arg(long, value_name = "FILE", requires = "web")]
    web_token_file: Option<PathBuf>,
    /// How long the page is answered when the run is over, so that its last figures are read;
    /// Ctrl-C ends that.
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "web")]
    web_linger: Option<Duration>,
}

/// A page that is answered.
pub(crate) struct Web {
    _responder: Responder,
    linger: Duration,
}

/// What a page needs, before anything runs.
pub(crate) struct Opened {
    listener: TcpListener,
    guard: Guard,
    linger: Duration,
}

impl WebArgs {
    /// Opens what it takes, so that a mistake is found before the run.
    pub(crate) fn open(&self) -> Result<Option<Opened>, Failure> {
        let Some(address) = self.web else { return Ok(None) };
        let token = self.web_token_file.as_deref().map(Token::load).transpose();
        let guard = Guard::new(token.map_err(Failure::usage)?);
        if !guard.permits(address) {
            return Err(Failure::usage(format!(
                "--web={address} can be reached from other machines; give --web-token-file FILE, \
                 or an address such as 127.0.0.1:{}",
                address.port()
            )));
        }
        let listener = TcpListener::bind(address).map_err(|error| {
            Failure::environment(format!(
                "cannot answer at {address}: {error}; choose another with --web=ADDR:PORT"
            ))
        })?;
        Ok(Some(Opened { listener, guard, linger: self.web_linger.unwrap_or_default() }))
    }
}

impl Opened {
    /// Answers from now on with what the feed holds.
    pub(crate) fn start(self, feed: Feed) -> Result<Web, Failure> {
        let Self { listener, guard, linger } = self;
        let address = listener.local_addr().map_err(Failure::environment)?;
        let is_open = !Guard::default().permits(address);
        let answer = move |request: &Request<'_>| answer(request, &guard, &feed);
        let responder = Responder::start("web", listener, answer).map_err(Failure::environment)?;
        let how = if is_open { " (open it with ?token=TOKEN)" } else { "" };
        output::note(&format!("horolog: live page at http://{address}/{how}"));
        Ok(Web { _responder: responder, linger })
    }
}

impl Web {
    /// Goes on for as long as was asked for, or until somebody wants the end.
    pub(crate) fn finish(self) {
        let until = Instant::now() + self.linger;
        while Instant::now() < until && output::flow().is_continue() {
            thread::sleep(LOOK.min(self.linger));
        }
    }
}

fn answer(request: &Request<'_>, guard: &Guard, feed: &Feed) -> Answer {
    if let Some(refusal) = guard.refusal(request) {
        return refusal;
    }
    let since = request.parameter("since").and_then(|number| number.parse().ok()).unwrap_or(0);
    match request.path {
        "/" => Answer::html(live(Live::Load)),
        "/live.json" => Answer::json(feed.read().to_json(since)),
        "/metrics" => Answer::open_metrics(load_metrics(&feed.read())),
        _ => Answer::text(404, "there are /, /live.json and /metrics\n"),
    }
}

#[cfg(test)]
mod tests {
    use horolog_http::respond;
    use horolog_record::{Look, LookCounts, Looks};

    use super::*;

    fn asked(target: &str) -> String {
        let feed = Feed::new(Looks::new("load", "a server".to_owned(), "trial"));
        for sent in 0..3 {
            let counts = LookCounts { sent, ..LookCounts::default() };
            feed.look(Look { counts, ..Look::default() });
        }
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let reply =
            respond(request.as_bytes(), &|request| answer(request, &Guard::default(), &feed));
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn the_page_its_figures_and_the_metrics_are_answered() {
        let page = asked("/");
        assert!(page.starts_with("HTTP/1.0 200") && page.contains("<!doctype html>"), "{page}");
        assert!(page.contains("frame-ancestors 'none'"));
        for (since, looks) in [("", 3), ("?since=2", 1), ("?since=9", 0), ("?since=x", 3)] {
            let told = asked(&format!("/live.json{since}"));
            let (_, body) = told.split_once("\r\n\r\n").unwrap();
            let told: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(told["looks"].as_array().unwrap().len(), looks, "{since}");
        }
        assert!(asked("/metrics").contains("horolog_load_sent_total 2\n"));
        assert!(asked("/nothing").starts_with("HTTP/1.0 404"));
    }
}

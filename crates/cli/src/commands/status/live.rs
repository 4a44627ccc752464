//! Live view of a server's status on the terminal, updated each second: requests to the status
//! socket and terminal input. The layout is a pure function of the last two responses.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use horolog_server::ServerStatus;
use horolog_server::status::fetch_status;
use horolog_sys::signal::{BlockedSignals, Signal};
use ratatui::Frame;
use ratatui::crossterm::event;
use ratatui::text::Line;

use crate::failure::CommandFailure;
use crate::live::{ScrollView, ScrollViewAction};

/// Interval between two status requests to the server.
const FETCH_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the check for signals while waiting for terminal events.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Function that lays out the status `now` for a terminal of this number of columns, with rates
/// since the previous status `before`.
pub(crate) type StatusViewFormatter =
    fn(columns: usize, before: &ServerStatus, now: &ServerStatus) -> Vec<Line<'static>>;

/// Shows the status of the server with the status socket `path` until `q` or a signal ends the
/// view.
pub(crate) fn run(path: &Path, layout: StatusViewFormatter) -> Result<(), CommandFailure> {
    let first_status = fetch_status(path)?;
    let end_signals =
        BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate, Signal::HangUp])
            .map_err(CommandFailure::environment)?;
    let mut terminal = ratatui::try_init().map_err(CommandFailure::environment)?;
    let outcome = draw_until_end(path, &mut terminal, &end_signals, first_status, layout);
    // A closed terminal needs no restoring.
    let _ = ratatui::try_restore();
    outcome
}

fn draw_until_end(
    path: &Path,
    terminal: &mut ratatui::DefaultTerminal,
    end_signals: &BlockedSignals,
    first_status: ServerStatus,
    layout: StatusViewFormatter,
) -> Result<(), CommandFailure> {
    let (mut before, mut now) = (first_status.clone(), first_status);
    let (mut screen, mut next_fetch) = (ScrollView::default(), Instant::now() + FETCH_INTERVAL);
    loop {
        let lines = |columns| layout(columns, &before, &now);
        let draw = |frame: &mut Frame<'_>| screen.draw(frame, "updated every second", lines);
        terminal.draw(draw).map_err(CommandFailure::environment)?;
        match wait_for_action(&mut screen, next_fetch, end_signals)
            .map_err(CommandFailure::environment)?
        {
            StatusViewAction::Draw => {}
            StatusViewAction::End => return Ok(()),
            StatusViewAction::Fetch => {
                before = std::mem::replace(&mut now, fetch_status(path)?);
                next_fetch = Instant::now() + FETCH_INTERVAL;
            }
        }
    }
}

/// Next action of the live view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StatusViewAction {
    /// Request the status of the server.
    Fetch,
    /// Draw the same status again: the scroll position or the terminal's size may have changed.
    Draw,
    End,
}

/// Waits until `next_fetch`, or for a key, a resize of the terminal or a signal; returns the action
/// that it requests.
fn wait_for_action(
    screen: &mut ScrollView,
    next_fetch: Instant,
    end_signals: &BlockedSignals,
) -> io::Result<StatusViewAction> {
    loop {
        let wait = next_fetch.saturating_duration_since(Instant::now());
        if end_signals.wait(Duration::ZERO)?.is_some() {
            return Ok(StatusViewAction::End);
        }
        if wait.is_zero() {
            return Ok(StatusViewAction::Fetch);
        }
        if event::poll(wait.min(POLL_INTERVAL))? {
            return Ok(match screen.handle_event(&event::read()?) {
                ScrollViewAction::Draw => StatusViewAction::Draw,
                ScrollViewAction::End => StatusViewAction::End,
            });
        }
    }
}

//! A server's state on the terminal, updated each second. The layout is a pure function of two
//! responses of the server; this module does the requests and the terminal.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use horolog_server::status;
use horolog_sys::signal::{BlockedSignals, Signal};
use ratatui::Frame;
use ratatui::crossterm::event;
use ratatui::text::Line;
use serde_json::Value;

use crate::failure::CommandFailure;
use crate::live::{KeyAction, Screen};

/// Interval between two requests to the server.
const EVERY: Duration = Duration::from_secs(1);
/// Interval of the check for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Function that lays out the later of two responses of a server, for this number of columns.
pub(crate) type ViewLayout = fn(columns: usize, before: &Value, now: &Value) -> Vec<Line<'static>>;

/// Shows the server at `path` until `q` is pressed or a signal ends it.
pub(crate) fn run(path: &Path, lay: ViewLayout) -> Result<(), CommandFailure> {
    let first = fetch(path)?;
    let ends = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate, Signal::HangUp])
        .map_err(CommandFailure::environment)?;
    let mut terminal = ratatui::try_init().map_err(CommandFailure::environment)?;
    let shown = show(path, &mut terminal, &ends, first, lay);
    // A closed terminal needs no restoring.
    let _ = ratatui::try_restore();
    shown
}

fn show(
    path: &Path,
    terminal: &mut ratatui::DefaultTerminal,
    ends: &BlockedSignals,
    first: Value,
    lay: ViewLayout,
) -> Result<(), CommandFailure> {
    let (mut before, mut now) = (first.clone(), first);
    let (mut screen, mut then) = (Screen::default(), Instant::now() + EVERY);
    loop {
        let lines = |columns| lay(columns, &before, &now);
        let draw = |frame: &mut Frame<'_>| screen.draw(frame, "updated every second", lines);
        terminal.draw(draw).map_err(CommandFailure::environment)?;
        match next(&mut screen, then, ends).map_err(CommandFailure::environment)? {
            LiveAction::Draw => {}
            LiveAction::End => return Ok(()),
            LiveAction::Fetch => {
                before = std::mem::replace(&mut now, fetch(path)?);
                then = Instant::now() + EVERY;
            }
        }
    }
}

/// Next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LiveAction {
    /// Request the state again.
    Fetch,
    /// Draw the same state again, from another line or in another size.
    Draw,
    End,
}

/// Waits until `then`, or for a key, a resize of the terminal or a signal.
fn next(screen: &mut Screen, then: Instant, ends: &BlockedSignals) -> io::Result<LiveAction> {
    loop {
        let wait = then.saturating_duration_since(Instant::now());
        if ends.wait(Duration::ZERO)?.is_some() {
            return Ok(LiveAction::End);
        }
        if wait.is_zero() {
            return Ok(LiveAction::Fetch);
        }
        if event::poll(wait.min(POLL_INTERVAL))? {
            return Ok(match screen.event(&event::read()?) {
                KeyAction::Draw => LiveAction::Draw,
                KeyAction::End => LiveAction::End,
            });
        }
    }
}

/// Requests the state of the server at `path`.
pub(crate) fn fetch(path: &Path) -> Result<Value, CommandFailure> {
    let text = status::fetch(path)?;
    serde_json::from_str(&text).map_err(|error| {
        CommandFailure::environment(format!("invalid JSON from {}: {error}", path.display()))
    })
}

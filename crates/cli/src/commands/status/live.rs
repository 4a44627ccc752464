//! A server's state on the terminal, anew each second. What is laid out is a pure function of two
//! answers of the server; here stand the asking and the terminal.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use horolog_server::status;
use horolog_sys::signal::{BlockedSignals, Signal};
use ratatui::Frame;
use ratatui::crossterm::event;
use ratatui::text::Line;
use serde_json::Value;

use crate::failure::Failure;
use crate::live::{Asked, Screen};

/// How often the server is asked.
const EVERY: Duration = Duration::from_secs(1);
/// How often is looked for a signal meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Lays out the later of two answers of a server, for so many columns.
pub(crate) type Lay = fn(columns: usize, before: &Value, now: &Value) -> Vec<Line<'static>>;

/// Shows the server at `path` until `q` is pressed or a signal asks for the end.
pub(crate) fn run(path: &Path, lay: Lay) -> Result<(), Failure> {
    let first = ask(path)?;
    let ends = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate, Signal::HangUp])
        .map_err(Failure::environment)?;
    let mut terminal = ratatui::try_init().map_err(Failure::environment)?;
    let shown = show(path, &mut terminal, &ends, first, lay);
    // A terminal that is gone needs no restoring.
    let _ = ratatui::try_restore();
    shown
}

fn show(
    path: &Path,
    terminal: &mut ratatui::DefaultTerminal,
    ends: &BlockedSignals,
    first: Value,
    lay: Lay,
) -> Result<(), Failure> {
    let (mut before, mut now) = (first.clone(), first);
    let (mut screen, mut then) = (Screen::default(), Instant::now() + EVERY);
    loop {
        let lines = |columns| lay(columns, &before, &now);
        let draw = |frame: &mut Frame<'_>| screen.draw(frame, "anew each second", lines);
        terminal.draw(draw).map_err(Failure::environment)?;
        match next(&mut screen, then, ends).map_err(Failure::environment)? {
            Next::Draw => {}
            Next::End => return Ok(()),
            Next::Ask => {
                before = std::mem::replace(&mut now, ask(path)?);
                then = Instant::now() + EVERY;
            }
        }
    }
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The server is asked again.
    Ask,
    /// The same is drawn again, from another line on or in another size.
    Draw,
    End,
}

/// Waits until then, or for a key, another size of the terminal or a signal.
fn next(screen: &mut Screen, then: Instant, ends: &BlockedSignals) -> io::Result<Next> {
    loop {
        let wait = then.saturating_duration_since(Instant::now());
        if ends.wait(Duration::ZERO)?.is_some() {
            return Ok(Next::End);
        }
        if wait.is_zero() {
            return Ok(Next::Ask);
        }
        if event::poll(wait.min(LOOK))? {
            return Ok(match screen.event(&event::read()?) {
                Asked::Draw => Next::Draw,
                Asked::End => Next::End,
            });
        }
    }
}

/// The state of the server at `path`.
pub(crate) fn ask(path: &Path) -> Result<Value, Failure> {
    let text = status::ask(path)?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::environment(format!("{} answers no JSON: {error}", path.display()))
    })
}

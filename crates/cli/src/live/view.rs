//! Live view on standard error's terminal, drawn by a thread of its own: a slow terminal delays
//! nothing but itself. Its keys end the run as Ctrl-C does.

use std::io::{self, Stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_sys::undo::UndoGuard;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::text::Line;
use ratatui::{Frame, Terminal};

use super::{KeyAction, Screen, needs_a_terminal_on_stderr};
use crate::failure::CommandFailure;
use crate::output;

/// Interval between two drawings.
const EVERY: Duration = Duration::from_millis(500);
/// Interval of the check for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The view; finishing it restores the terminal.
pub(crate) struct TerminalView {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Restores the terminal, also if a second Ctrl-C ends the process.
    _terminal: UndoGuard,
}

impl TerminalView {
    /// Draws the lines that `lay` returns for the width in columns, until it is finished.
    pub(crate) fn start(
        lay: impl Fn(usize) -> Vec<Line<'static>> + Send + 'static,
    ) -> Result<Self, CommandFailure> {
        needs_a_terminal_on_stderr()?;
        output::set_viewed(true);
        let (terminal, undo) = UndoGuard::after_change(take_terminal, give_terminal_back)
            .map_err(CommandFailure::environment)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || show(terminal, &stopped, lay);
        let thread = thread::Builder::new()
            .name("view".into())
            .spawn(work)
            .map_err(CommandFailure::environment)?;
        Ok(Self { stop, thread: Some(thread), _terminal: undo })
    }
}

impl Drop for TerminalView {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // After any error of the view the run continues without it.
            let _ = thread.join();
        }
        output::set_viewed(false);
    }
}

/// State that changes while it is displayed. It is behind a lock that is held only for one change
/// or one drawing.
pub(crate) struct SharedView<T> {
    state: Arc<Mutex<T>>,
    _view: TerminalView,
}

impl<T: Send + 'static> SharedView<T> {
    /// Draws the lines that `lay` returns for the state and the width in columns.
    pub(crate) fn start(
        state: T,
        lay: fn(&T, usize) -> Vec<Line<'static>>,
    ) -> Result<Self, CommandFailure> {
        let state = Arc::new(Mutex::new(state));
        let view_state = Arc::clone(&state);
        let view = TerminalView::start(move |columns| {
            lay(&view_state.lock().unwrap_or_else(PoisonError::into_inner), columns)
        })?;
        Ok(Self { state, _view: view })
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn take_terminal() -> io::Result<Terminal<CrosstermBackend<Stderr>>> {
    enable_raw_mode()?;
    let taken = execute!(io::stderr(), EnterAlternateScreen)
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
    if taken.is_err() {
        give_terminal_back();
    }
    taken
}

/// A closed terminal needs no restoring.
fn give_terminal_back() {
    let _ = execute!(io::stderr(), LeaveAlternateScreen, ratatui::crossterm::cursor::Show);
    let _ = disable_raw_mode();
}

fn show(
    mut terminal: Terminal<CrosstermBackend<Stderr>>,
    stop: &AtomicBool,
    lay: impl Fn(usize) -> Vec<Line<'static>>,
) {
    let mut screen = Screen::default();
    while !stop.load(Ordering::Relaxed) {
        let often = if output::flow().is_break() { "ending" } else { "updated twice a second" };
        let draw = |frame: &mut Frame<'_>| screen.draw(frame, often, &lay);
        // The terminal may be closed by now.
        if terminal.draw(draw).is_err() || wait(&mut screen, stop).is_err() {
            return;
        }
    }
}

/// Waits until the next drawing. A key that requests the end ends the run.
fn wait(screen: &mut Screen, stop: &AtomicBool) -> io::Result<()> {
    let then = Instant::now() + EVERY;
    while !stop.load(Ordering::Relaxed) && Instant::now() < then {
        if event::poll(POLL_INTERVAL)? {
            if screen.event(&event::read()?) == KeyAction::End {
                output::request_stop();
            }
            return Ok(());
        }
    }
    Ok(())
}

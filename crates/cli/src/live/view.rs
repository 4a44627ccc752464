//! A view of something that goes on, on standard error's terminal, drawn by a thread of its own: a
//! terminal that is slow holds nothing up but itself. Its keys end the run as Ctrl-C does.

use std::io::{self, Stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_sys::undo::Undo;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::text::Line;
use ratatui::{Frame, Terminal};

use super::{Asked, Screen, needs_a_terminal_beside};
use crate::failure::Failure;
use crate::output;

/// How often it is drawn.
const EVERY: Duration = Duration::from_millis(500);
/// How often is looked for its end meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// The view; finishing it leaves the terminal as it was.
pub(crate) struct View {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Puts the terminal back, also where a second Ctrl-C ends the process.
    _terminal: Undo,
}

impl View {
    /// Draws what `lay` makes of so many columns, until it is finished.
    pub(crate) fn start(
        lay: impl Fn(usize) -> Vec<Line<'static>> + Send + 'static,
    ) -> Result<Self, Failure> {
        needs_a_terminal_beside()?;
        output::set_viewed(true);
        let (terminal, undo) =
            Undo::after(take_terminal, give_terminal_back).map_err(Failure::environment)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || show(terminal, &stopped, lay);
        let thread =
            thread::Builder::new().name("view".into()).spawn(work).map_err(Failure::environment)?;
        Ok(Self { stop, thread: Some(thread), _terminal: undo })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Whatever it complained of, the run goes on without a view.
            let _ = thread.join();
        }
        output::set_viewed(false);
    }
}

/// Something that changes while it is looked at. It is behind a lock that is held for as long as it
/// takes to change it once, or to draw it.
pub(crate) struct Viewed<T> {
    state: Arc<Mutex<T>>,
    _view: View,
}

impl<T: Send + 'static> Viewed<T> {
    /// Draws what `lay` makes of it and so many columns.
    pub(crate) fn start(
        state: T,
        lay: fn(&T, usize) -> Vec<Line<'static>>,
    ) -> Result<Self, Failure> {
        let state = Arc::new(Mutex::new(state));
        let seen = Arc::clone(&state);
        let view = View::start(move |columns| {
            lay(&seen.lock().unwrap_or_else(PoisonError::into_inner), columns)
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

/// A terminal that is gone needs no restoring.
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
        let often = if output::flow().is_break() { "ending" } else { "anew twice a second" };
        let draw = |frame: &mut Frame<'_>| screen.draw(frame, often, &lay);
        // Nobody may be there to see it any longer.
        if terminal.draw(draw).is_err() || wait(&mut screen, stop).is_err() {
            return;
        }
    }
}

/// Waits until it is to be drawn again. A key that asks for the end ends the run.
fn wait(screen: &mut Screen, stop: &AtomicBool) -> io::Result<()> {
    let then = Instant::now() + EVERY;
    while !stop.load(Ordering::Relaxed) && Instant::now() < then {
        if event::poll(LOOK)? {
            if screen.event(&event::read()?) == Asked::End {
                output::end();
            }
            return Ok(());
        }
    }
    Ok(())
}

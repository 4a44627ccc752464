//! Live view on the terminal of standard error. A separate thread draws it, so that a slow terminal
//! does not delay the measurement. Keys that end the view end the run, as Ctrl-C does.

use std::io::{self, Stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

use super::{ScrollView, ScrollViewAction, require_terminal};
use crate::failure::CommandFailure;
use crate::output;

/// Interval at which the view is redrawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which the drawing thread checks whether the view has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Running view; dropping it ends its thread and restores the terminal.
pub(crate) struct TerminalView {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Restores the terminal on drop, and if a second Ctrl-C exits the process.
    _terminal: UndoGuard,
}

impl TerminalView {
    /// Starts a view of the lines that `layout` returns for the width in columns; `update_text`
    /// describes how often they change. Fails unless standard error and standard input are
    /// terminals.
    pub(crate) fn start(
        update_text: &'static str,
        layout: impl Fn(usize) -> Vec<Line<'static>> + Send + 'static,
    ) -> Result<Self, CommandFailure> {
        require_terminal()?;
        output::set_live_view_active(true);
        let (terminal, undo) = UndoGuard::after_change(set_up_terminal, restore_terminal)
            .map_err(CommandFailure::environment)?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread_stop = Arc::clone(&stop);
        let draw = move || draw_until_stopped(terminal, &thread_stop, update_text, layout);
        let thread = thread::Builder::new()
            .name("view".into())
            .spawn(draw)
            .map_err(CommandFailure::environment)?;
        Ok(Self { stop, thread: Some(thread), _terminal: undo })
    }
}

impl Drop for TerminalView {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The run continues if the thread has panicked.
            let _ = thread.join();
        }
        output::set_live_view_active(false);
    }
}

fn set_up_terminal() -> io::Result<Terminal<CrosstermBackend<Stderr>>> {
    enable_raw_mode()?;
    let terminal = execute!(io::stderr(), EnterAlternateScreen)
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
    if terminal.is_err() {
        restore_terminal();
    }
    terminal
}

/// Leaves the alternate screen and raw mode. Errors are ignored, because a closed terminal needs no
/// restoring.
fn restore_terminal() {
    let _ = execute!(io::stderr(), LeaveAlternateScreen, ratatui::crossterm::cursor::Show);
    let _ = disable_raw_mode();
}

fn draw_until_stopped(
    mut terminal: Terminal<CrosstermBackend<Stderr>>,
    stop: &AtomicBool,
    update_text: &str,
    layout: impl Fn(usize) -> Vec<Line<'static>>,
) {
    let mut screen = ScrollView::default();
    while !stop.load(Ordering::Relaxed) {
        let update_text =
            if output::check_stop_request().is_break() { "ending" } else { update_text };
        let draw = |frame: &mut Frame<'_>| screen.draw(frame, update_text, &layout);
        // An error usually means that the terminal was closed.
        if terminal.draw(draw).is_err() || wait_for_draw(&mut screen, stop).is_err() {
            return;
        }
    }
}

/// Waits until the next redraw, or for a terminal event. A key that ends the view ends the run.
fn wait_for_draw(screen: &mut ScrollView, stop: &AtomicBool) -> io::Result<()> {
    let next_draw = Instant::now() + DRAW_INTERVAL;
    while !stop.load(Ordering::Relaxed) && Instant::now() < next_draw {
        if event::poll(POLL_INTERVAL)? {
            if screen.handle_event(&event::read()?) == ScrollViewAction::End {
                output::request_stop();
            }
            return Ok(());
        }
    }
    Ok(())
}

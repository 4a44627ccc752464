//! Live view of a server's status on the terminal, updated each second from the status socket. The
//! layout is a pure function of the last two responses.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_server::ServerStatus;
use horolog_server::status::fetch_status;
use ratatui::text::Line;

use crate::failure::CommandFailure;
use crate::live::TerminalView;
use crate::output;

/// Interval between two status requests to the server.
const FETCH_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the check whether the view is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Function that lays out the status `now` for a terminal of this number of columns, with rates
/// since the previous status `before`.
pub(crate) type StatusViewFormatter =
    fn(columns: usize, before: &ServerStatus, now: &ServerStatus) -> Vec<Line<'static>>;

/// Shows the status of the server with the status socket `path` until `q` or a signal ends the
/// view.
pub(crate) fn run(path: &Path, layout: StatusViewFormatter) -> Result<(), CommandFailure> {
    let first_status = fetch_status(path)?;
    output::install_interrupt_handler()?;
    let statuses = Arc::new(Mutex::new((first_status.clone(), first_status)));
    let view_statuses = Arc::clone(&statuses);
    let _view = TerminalView::start("updated every second", move |columns| {
        let statuses = view_statuses.lock().unwrap_or_else(PoisonError::into_inner);
        layout(columns, &statuses.0, &statuses.1)
    })?;
    let mut next_fetch = Instant::now() + FETCH_INTERVAL;
    while output::check_stop_request().is_continue() {
        thread::sleep(POLL_INTERVAL);
        if Instant::now() >= next_fetch {
            let status = fetch_status(path)?;
            let mut statuses = statuses.lock().unwrap_or_else(PoisonError::into_inner);
            statuses.0 = std::mem::replace(&mut statuses.1, status);
            next_fetch = Instant::now() + FETCH_INTERVAL;
        }
    }
    Ok(())
}

//! `horolog clock show`: clock status of a running server, as text, JSON or a live view.

mod text;

use std::path::PathBuf;

use clap::Args;
use horolog_server::{ServerStatus, status};
use ratatui::text::Line;
use serde_json::{Map, Value};

use crate::commands::status::live;
use crate::failure::CommandFailure;
use crate::live::require_terminal;
use crate::output;

/// Fields of a server's status (JSON) that concern its clock.
const CLOCK_FIELDS: [&str; 16] = [
    "schema",
    "pid",
    "uptime_s",
    "leap",
    "stratum",
    "tai_minus_utc_s",
    "pending_leap",
    "root_delay_ns",
    "root_dispersion_ns",
    "synchronised",
    "page_age_ns",
    "page_expired",
    "clock",
    "sources",
    "calibration",
    "ptp",
];

/// Show the clock state of a running server: its sources and their selection, its discipline by a
/// GNSS receiver, and its PTP ports.
#[derive(Args, Debug)]
pub(crate) struct ClockShowArgs {
    /// Status socket of the server [default: that of the only running server].
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Print these parts of the server's status as JSON.
    #[arg(long, conflicts_with = "live")]
    json: bool,
    /// Show them on the terminal, updated every second, until q is pressed.
    #[arg(long)]
    live: bool,
}

pub(super) fn run(args: ClockShowArgs) -> Result<(), CommandFailure> {
    if args.live {
        require_terminal()?;
    }
    let path = args.status_socket.map_or_else(status::find_socket, Ok)?;
    if args.live {
        return live::run(&path, layout);
    }
    let status = status::fetch_status(&path)?;
    if args.json {
        // Serialisation cannot fail, as all map keys are strings.
        let text = serde_json::to_string_pretty(&clock_fields(&status)).unwrap_or_default();
        return output::print_line(&text);
    }
    output::print_line(&text::clock_text(&status, output::table_style().width))
}

/// Returns the fields that concern the clock and are present.
fn clock_fields(status: &ServerStatus) -> Map<String, Value> {
    let mut status = status.to_json();
    let fields = CLOCK_FIELDS.iter().filter_map(|name| Some((*name, status.get_mut(name)?.take())));
    fields.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Lays out the status for the live view.
fn layout(columns: usize, _previous: &ServerStatus, status: &ServerStatus) -> Vec<Line<'static>> {
    text::clock_text(status, columns).lines().map(|line| Line::from(line.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::status::sample_status;

    #[test]
    fn every_field_is_one_of_the_status() {
        assert_eq!(clock_fields(&sample_status()).len(), CLOCK_FIELDS.len());
    }

    #[test]
    fn any_size_can_be_drawn() {
        let status = sample_status();
        for columns in [0, 1, 20, 100] {
            layout(columns, &status, &status);
        }
    }
}

//! `horolog clock show`: clock status of a running server, as text, JSON or a live view.

mod text;

use std::path::PathBuf;

use clap::Args;
use horolog_server::status;
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
    let status = live::fetch(&path)?;
    if args.json {
        let fields = CLOCK_FIELDS.iter().filter_map(|name| Some((*name, status.get(name)?)));
        let fields: Map<_, _> =
            fields.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        // Serialisation cannot fail, as all map keys are strings.
        return output::print_line(&serde_json::to_string_pretty(&fields).unwrap_or_default());
    }
    output::print_line(&text::clock_text(&status, output::table_style().width))
}

/// Lays out the status for the live view.
fn layout(columns: usize, _previous: &Value, status: &Value) -> Vec<Line<'static>> {
    text::clock_text(status, columns).lines().map(|line| Line::from(line.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_size_and_any_answer_can_be_drawn() {
        for columns in [0, 1, 20, 100] {
            for status in [text::tests::status(), json!({}), json!(null)] {
                layout(columns, &json!(null), &status);
            }
        }
    }
}

//! Arbitrary text as a configuration file: parsing never panics, an error is one line and has the
//! number of a line of the text, and parsed settings are valid as flags.
#![no_main]

use std::collections::HashSet;
use std::sync::LazyLock;

use clap::{Arg, ArgAction, Command, value_parser};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cli/src/commands/serve/file.rs"]
#[allow(dead_code, reason = "only the command uses all of it")]
mod file;

/// Command with one flag of each kind.
static COMMAND: LazyLock<Command> = LazyLock::new(|| {
    Command::new("horolog").args([
        Arg::new("listen")
            .long("listen")
            .action(ArgAction::Append)
            .value_parser(value_parser!(std::net::SocketAddr)),
        Arg::new("user").long("user"),
        Arg::new("local").long("local").action(ArgAction::SetTrue),
        Arg::new("stratum").long("stratum").value_parser(value_parser!(u8)),
        Arg::new("test-drift").long("test-drift").value_parser(value_parser!(i64)),
        Arg::new("engine").long("engine").value_parser(["auto", "socket", "xdp"]),
    ])
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match file::parse_settings(text, &COMMAND) {
        Ok(settings) => {
            let flags = file::flags_except(&settings, &HashSet::new());
            let arguments = std::iter::once("horolog".to_owned()).chain(flags);
            COMMAND.clone().try_get_matches_from(arguments).expect("every setting is a valid flag");
        }
        Err(error) => {
            assert!((1..=1 + text.matches('\n').count()).contains(&error.line), "{error:?}");
            assert!(!error.reason.contains('\n'), "{error:?}");
        }
    }
});

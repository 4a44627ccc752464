//! `horolog load nts-ke`: flags to a run, its result as text and JSON.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_load::establishment::{self, CONNECTIONS, EstablishmentOptions};
use horolog_load::nts::Trust;
use horolog_load::target::TargetName;
use horolog_report::table;

use crate::failure::Failure;
use crate::output::{self, Destination};
use crate::values;

/// Establish NTS keys (RFC 8915) over and over and say how many a second the server completes.
///
/// Each client opens a connection, shakes hands in full (TLS 1.3, nothing is resumed), takes keys
/// and cookies, and begins again.
#[derive(Args, Debug)]
pub(crate) struct NtsKeArgs {
    /// The server: HOST or HOST:PORT; the port is 4460 unless given.
    #[arg(value_name = "HOST[:PORT]", value_parser = super::nts::establishment)]
    target: TargetName,
    /// PEM file of the certificates to trust.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The name that the certificate has to be for [default: the one that the server is called by].
    #[arg(long, value_name = "NAME")]
    nts_name: Option<String>,
    /// Clients, each with one connection at a time.
    #[arg(short, long, value_name = "N", default_value_t = CONNECTIONS)]
    connections: usize,
    /// How long.
    #[arg(short, long, value_name = "SECONDS", value_parser = values::positive_duration,
          default_value = "5")]
    duration: Duration,
    /// How long one key establishment may take.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "5s")]
    timeout: Duration,
    #[command(flatten)]
    limits: super::LimitArgs,
    /// The target has a public address and is yours.
    #[arg(long)]
    i_own_this_target: bool,
    /// Write the result to this file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(args: NtsKeArgs) -> Result<(), Failure> {
    let quiet = args.json.as_deref().is_some_and(output::is_stdout);
    let json = args.json.as_deref().map(Destination::open).transpose()?;
    let options = EstablishmentOptions {
        target: args.target,
        family: None,
        name: args.nts_name,
        i_own_this_target: args.i_own_this_target,
        trust: Trust::from_pem_file(Some(&args.ca)).map_err(Failure::usage)?,
        connections: args.connections,
        duration: args.duration,
        timeout: args.timeout,
        limits: args.limits.resolve_for_establishments()?,
        command: output::command_line(),
    };
    output::end_gently()?;
    eprintln!(
        "horolog: establishing keys with {} by {} clients for {:.1} s",
        options.target,
        options.connections,
        options.duration.as_secs_f64()
    );
    let result = establishment::run(&options, &|| output::flow().is_break())?;
    json.map(|file| file.write(&horolog_report::to_json(&result))).transpose()?;
    if !quiet {
        output::line(&table::establishment(&result, &output::table_style()))?;
    }
    super::limits::verdict(&result.findings, &result.limits)
}

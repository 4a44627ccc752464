//! `horolog ntpperf`, also run by a binary of that name: converts ntpperf's options to load options
//! and prints its table on standard output, for scripts that parse it. Findings follow on standard
//! error once the table is complete.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::ffi::OsString;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, ArgGroup, Args};
use horolog_load::mix::RequestMix;
use horolog_load::nts::ImportedSession;
use horolog_load::offset::ServerOffsetOptions;
use horolog_load::ptp::{PtpLoadTransport, PtpRequestKind, PtpRequestOptions};
use horolog_load::ramp::Ramp;
use horolog_load::request_kind::{NtpRequestOptions, NtsSessionSource, RequestKind};
use horolog_load::target::{RouteHints, TargetName};
use horolog_load::{LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{
    Finding, FindingCode, LoadResult, LoadSeriesPoint, PartPlan, RequestSpacing, RunObserver,
    Severity, Trial,
};
use horolog_report::table::{NtpperfColumnGroup, NtpperfTableOptions};
use horolog_time::Span;
use horolog_wire::ethernet::MacAddress;
use horolog_wire::prefix::Prefix;

use super::{LoadEngineArg, LoadOutputs, announce, parse_mac};
use crate::failure::{CommandFailure, check_findings};
use crate::output::{self, ProgressLine};
use crate::result_store::StoreResultArgs;
use crate::secret::SecretText;
use crate::values;

/// Name of the command, and of a binary or link that runs it.
const COMMAND_NAME: &str = "ntpperf";

/// Accepted rates, in requests per second; ntpperf's interval is a whole number of nanoseconds, so
/// the highest rate is one request per ns.
const RATE_RANGE: RangeInclusive<u32> = 1..=1_000_000_000;

/// Requests per second of each simulated client, of which there are 16,384 at most.
const RATE_PER_CLIENT: f64 = 10.0;

/// Number of uncounted requests that each client sends first in interleaved mode: a server replies
/// in that mode from the second or third request on.
const WARM_UP: u32 = 3;

/// Tolerated shortfall of the rate, as a share of the intended rate, and tolerated lateness of the
/// last request, in seconds. The larger tolerance applies; at ntpperf's default duration of 2 s
/// they are equal.
const RATE_SHORTFALL_MAX: f64 = 0.01;
const LATENESS_MAX_S: f64 = 0.02;

/// Tolerated random variation of the number of requests with exponential intervals, in standard
/// deviations.
const DEVIATIONS_MAX: f64 = 5.0;

const MODE: &str = "Mode (the last one counts)";
/// Mode flags, of which the last one given counts, as with getopt.
const MODES: [&str; 4] = ["basic", "interleaved", "delay", "monitor"];
const NETWORK: &str = "Network options";
const OTHER: &str = "Other options";
const BEYOND: &str = "Beyond ntpperf";

/// Load a time server with ntpperf's command-line options and output format.
///
/// Clients are simulated: one for each 10 requests per second, up to 16384. The rate rises until
/// the highest is reached, more than half of the requests are lost, or (without -l) requests cannot
/// be sent in time.
///
/// The table is on standard output; the name of the engine and the findings are on standard error.
/// Shares are of the requests actually sent. Requests without a reply within 1 s are lost. With -N
/// a master answers each request with two or three messages (column delay: Delay_Resp; column
/// sync/fw: Sync and its Follow_Up); a request is lost unless all of them arrive, so that its share
/// is never negative, as it can be in ntpperf. As in ntpperf, only mode, origin timestamp and
/// length of NTP replies are checked for the table; the checks for JSON and the HTML report are
/// stricter. The columns after the shares are the server's response times, or with -o the offsets
/// of its transmit timestamps; neither is known for delay requests.
#[derive(Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true, args_override_self = true)]
#[command(group(ArgGroup::new("mode").required(true).multiple(true)))]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct NtpperfArgs {
    /// Send NTP requests of clients in basic mode.
    #[arg(short = 'B', group = "mode", overrides_with_all = MODES, help_heading = MODE)]
    basic: bool,
    /// Send NTP requests of clients in interleaved mode; the first few requests of each are not
    /// counted.
    #[arg(short = 'I', group = "mode", overrides_with_all = MODES, help_heading = MODE)]
    interleaved: bool,
    /// Send PTP delay requests in this domain.
    #[arg(short = 'D', value_name = "DOMAIN", group = "mode", overrides_with_all = MODES,
          help_heading = MODE)]
    delay: Option<u8>,
    /// Send PTP NetSync Monitor requests in this domain.
    #[arg(short = 'N', value_name = "DOMAIN", group = "mode", overrides_with_all = MODES,
          help_heading = MODE)]
    monitor: Option<u8>,

    /// Interface to send from.
    #[arg(short, value_name = "INTERFACE", help_heading = NETWORK)]
    interface: String,
    /// Network of the simulated clients; the server routes it back to this host.
    #[arg(short, value_name = "NETWORK/BITS", help_heading = NETWORK)]
    source: Prefix,
    /// Address of the server.
    #[arg(short, value_name = "IP-ADDRESS", help_heading = NETWORK)]
    destination: TargetName,
    /// MAC address of the server or its router [default: from the neighbour table].
    #[arg(short, value_name = "MAC", value_parser = parse_mac, help_heading = NETWORK)]
    mac: Option<MacAddress>,

    /// With -D, send delay requests to the PTP primary multicast address, 224.0.1.129; -d is the
    /// master whose replies count.
    #[arg(short = 'M', conflicts_with_all = ["basic", "interleaved", "monitor"],
          help_heading = OTHER)]
    multicast: bool,
    /// Lowest and highest rate in requests per second, 1 to 1000000000.
    #[arg(short, value_name = "RATE[-RATE]", default_value = "1000-1000000",
          value_parser = parse_rate_range, help_heading = OTHER)]
    rate: (u32, u32),
    /// Sending threads, each pinned to its own core.
    #[arg(short = 'p', value_name = "NUMBER", default_value_t = 1, help_heading = OTHER)]
    threads: usize,
    /// Distribute intervals between requests exponentially instead of keeping them constant.
    #[arg(short, help_heading = OTHER)]
    exponential: bool,
    /// Permit late requests; a rate that is not reached does not end the run.
    #[arg(short, help_heading = OTHER)]
    late: bool,
    /// Ratio of each rate to the one before it.
    #[arg(short = 'x', value_name = "MULT", default_value_t = 1.5, help_heading = OTHER)]
    multiplier: f64,
    /// Duration of each rate, in seconds.
    #[arg(short = 't', value_name = "INTERVAL", default_value = "2.0",
          value_parser = values::positive_duration, help_heading = OTHER)]
    time: Duration,
    /// Print offsets: the local receive timestamp of a reply, minus the server's transmit
    /// timestamp, minus this correction in seconds (for the network and for receiving).
    #[arg(short = 'o', value_name = "CORRECTION", allow_hyphen_values = true, help_heading = OTHER)]
    offset: Option<Span>,
    /// Use the mean of the server's receive and transmit timestamps for -o, instead of the latter.
    #[arg(short = 'O', help_heading = OTHER)]
    offset_mean: bool,
    /// Use timestamps of the NIC for -o, instead of the kernel's.
    #[arg(short = 'H', help_heading = OTHER)]
    hardware: bool,
    /// Authenticate NTP requests by NTS with this key and cookie, in hexadecimal digits; with S2C,
    /// decrypt the replies too.
    #[arg(short = 'S', value_name = "C2S,COOKIE[,S2C]", value_parser = SecretText::read,
          conflicts_with_all = ["delay", "monitor", "interleaved"], help_heading = OTHER)]
    session: Option<SecretText>,
    /// Print help: -h a short one, --help the full one.
    #[arg(short, long, action = ArgAction::Help, help_heading = OTHER)]
    help: Option<bool>,

    /// Engine that sends and receives; auto takes xdp if available, otherwise packet.
    #[arg(long, value_enum, default_value_t = LoadEngineArg::Auto, help_heading = BEYOND)]
    engine: LoadEngineArg,
    /// Confirm that a server with a public address is yours.
    #[arg(long, help_heading = BEYOND)]
    i_own_this_target: bool,
    /// Write the complete result to FILE as JSON.
    #[arg(long, value_name = "FILE", help_heading = BEYOND)]
    json: Option<PathBuf>,
    /// Write an HTML report of the complete result to FILE.
    #[arg(long, value_name = "FILE", help_heading = BEYOND)]
    html: Option<PathBuf>,
    #[command(flatten, next_help_heading = BEYOND)]
    store_args: StoreResultArgs,
}

/// Returns the arguments of this process. If it runs under the name `ntpperf`, the first argument
/// is replaced by `horolog ntpperf`.
pub(crate) fn arguments(raw_arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = raw_arguments.collect();
    let program_name = arguments.first().and_then(|path| Path::new(path).file_name());
    if program_name.is_some_and(|name| name == COMMAND_NAME) {
        // `horolog` is the program name that the help shows.
        arguments.splice(..1, ["horolog".into(), COMMAND_NAME.into()]);
    }
    arguments
}

fn parse_rate_range(text: &str) -> Result<(u32, u32), String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let rate = |text: &str| text.parse().ok().filter(|rate| RATE_RANGE.contains(rate));
    match (rate(low), rate(high)) {
        (Some(low), Some(high)) if low <= high => Ok((low, high)),
        (Some(_), Some(_)) => Err("the lower rate comes first".to_owned()),
        _ => Err("write whole numbers from 1 to 1000000000, such as 1000-200000".to_owned()),
    }
}

impl NtpperfArgs {
    /// Returns the requests: of PTP, or of NTP, which `session` authenticates.
    fn requests(&self, session: Option<&ImportedSession>) -> Result<RequestMix, CommandFailure> {
        if let Some(ptp) = self.ptp_plan() {
            return Ok(RequestMix::only(ptp));
        }
        let interleaved = self.interleaved;
        let requests = NtpRequestOptions { interleaved, ..NtpRequestOptions::default() };
        let nts = session.map(NtsSessionSource::imported);
        Ok(RequestMix::only(RequestKind::ntp(requests, nts)?))
    }

    const fn ptp_plan(&self) -> Option<PtpRequestOptions> {
        let (kind, domain) = match (self.delay, self.monitor) {
            (Some(domain), _) => (PtpRequestKind::Delay, domain),
            (_, Some(domain)) => (PtpRequestKind::Nsm, domain),
            (None, None) => return None,
        };
        Some(PtpRequestOptions {
            kind,
            domain,
            minor_version: 0,
            multicast: self.multicast,
            transport: PtpLoadTransport::Udp,
        })
    }

    /// Returns the options of the offset measurement; `None` without -o, and for delay requests,
    /// because a delay response contains no transmit timestamp.
    fn offset_options(&self) -> Option<ServerOffsetOptions> {
        let (mean_of_server, hardware) = (self.offset_mean, self.hardware);
        let correction = self.offset.filter(|_| self.delay.is_none())?;
        Some(ServerOffsetOptions { correction, mean_of_server, hardware })
    }

    fn table(&self) -> NtpperfTableOptions {
        let panel = match self.offset_options() {
            Some(_) => Some(NtpperfColumnGroup::Offset),
            None if self.delay.is_some() => None,
            None => Some(NtpperfColumnGroup::ResponseTime),
        };
        NtpperfTableOptions { ptp: self.ptp_plan().is_some(), panel }
    }

    fn spacing(&self) -> RequestSpacing {
        if self.exponential { RequestSpacing::Exponential } else { RequestSpacing::Constant }
    }

    fn resolve(self) -> Result<LoadOptions, CommandFailure> {
        let imported = self.session.as_ref().map(|text| text.parse_session("-S")).transpose()?;
        let command = output::command_line();
        let command =
            self.session.as_ref().map_or(command.clone(), |secret| secret.redact_command(command));
        let (min, max) = (self.rate.0.into(), self.rate.1.into());
        let ramp = Ramp { min, max, multiplier: self.multiplier, duration: self.time };
        let (spacing, offset) = (self.spacing(), self.offset_options());
        let requests = self.requests(imported.as_ref())?;
        Ok(LoadOptions {
            hints: RouteHints { interface: Some(self.interface), mac: self.mac },
            i_own_this_target: self.i_own_this_target,
            engine: self.engine.kind(),
            source_network: Some(self.source),
            rate_per_client: Some(RATE_PER_CLIENT),
            warm_up: if self.interleaved { WARM_UP } else { 0 },
            threads: Some(self.threads),
            spacing,
            requests,
            offset,
            command,
            ..LoadOptions::new(self.destination, LoadProcedure::Ramp(ramp))
        })
    }
}

/// Observer that prints a row at the end of each trial, and ends the run at a rate that could not
/// be sent.
struct NtpperfTrialPrinter {
    table: NtpperfTableOptions,
    progress: ProgressLine,
    /// Duration of each rate, in seconds.
    duration_s: f64,
    spacing: RequestSpacing,
    late_allowed: bool,
    gave_up: bool,
    /// True if the user requested the end: it takes effect at the end of a trial.
    is_stopped: bool,
}

impl NtpperfTrialPrinter {
    /// Returns true if the generator sent noticeably less than intended.
    fn is_behind(&self, trial: &Trial) -> bool {
        let intended = trial.intended_rate * self.duration_s;
        let random_share = match self.spacing {
            RequestSpacing::Constant => 0.0,
            RequestSpacing::Exponential => DEVIATIONS_MAX / intended.max(1.0).sqrt(),
        };
        let share_min =
            1.0 - RATE_SHORTFALL_MAX.max(LATENESS_MAX_S / self.duration_s).max(random_share);
        (trial.sent as f64) < intended * share_min
            || trial.achieved_rate < trial.intended_rate * share_min
    }
}

impl RunObserver<Trial, LoadSeriesPoint> for NtpperfTrialPrinter {
    fn part_started(&mut self, plan: &PartPlan) {
        self.progress.show_trial(plan);
    }

    fn part_ended(&mut self, _: usize, trial: &Trial) {
        self.gave_up = !self.late_allowed && self.is_behind(trial);
        if !self.gave_up {
            self.progress.print_result_line(&self.table.row(trial));
            self.is_stopped = output::check_stop_request().is_break();
        }
    }

    fn flow(&self) -> ControlFlow<()> {
        if self.gave_up || self.is_stopped {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

pub(crate) fn run(args: NtpperfArgs) -> Result<(), CommandFailure> {
    if args.offset.is_some() && args.offset_options().is_none() {
        output::print_note(
            "horolog: delay responses carry no transmit timestamp, so -o has no \
            effect",
        );
    }
    let (table, spacing) = (args.table(), args.spacing());
    let (late_allowed, duration_s) = (args.late, args.time.as_secs_f64());
    let outputs =
        LoadOutputs::open(args.json.as_deref(), args.html.as_deref(), args.store_args.clone())?;
    if outputs.quiet {
        return Err(CommandFailure::usage("--json: the table is on standard output; give a file"));
    }
    let options = args.resolve()?;
    output::install_interrupt_handler()?;
    let load = LoadRun::prepare(options)?;
    announce(&load);
    let progress = ProgressLine::new();
    progress.print_result_line(&table.header());
    let mut trial_printer = NtpperfTrialPrinter {
        table,
        progress,
        duration_s,
        spacing,
        late_allowed,
        gave_up: false,
        is_stopped: false,
    };
    let result = load.run(&mut trial_printer)?;
    let NtpperfTrialPrinter { progress, gave_up, .. } = trial_printer;
    let printed = progress.finish_printing();
    if let (true, Some(trial)) = (gave_up, result.trials.last()) {
        output::print_note(&format!("Could not send requests at rate {:.0}", trial.intended_rate));
    }
    outputs.write(&result)?;
    printed?;
    print_findings(&result, gave_up)
}

/// Prints warnings, a fallback of the engine and, unless the run `gave_up` at a rate, an early end,
/// one per line. Returns an error if a finding has error severity.
fn print_findings(result: &LoadResult, gave_up: bool) -> Result<(), CommandFailure> {
    let is_printed = |finding: &&Finding| match finding.code {
        // Consequences of a rate that could not be sent, which was reported already.
        FindingCode::Interrupted | FindingCode::GeneratorBehind => !gave_up,
        FindingCode::EngineFallback => true,
        _ => finding.severity == Severity::Warning,
    };
    for finding in result.findings.iter().filter(is_printed) {
        output::print_note(&format!("horolog: {}; {}", finding.message, finding.advice));
    }
    check_findings(&result.findings)
}

#[cfg(test)]
mod tests;

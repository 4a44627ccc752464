//! `horolog load ptp`: requests to a PTP master.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::{Args, Subcommand, ValueEnum};
use horolog_load::LoadOptions;
use horolog_load::mix::RequestMix;
use horolog_load::ptp::{
    PtpLoadTransport, PtpRequestKind, PtpRequestOptions, UnicastMessageTypes,
    UnicastRequestParameters,
};
use horolog_wire::ptp::MessageType;

use super::{LoadCommonArgs, LoadOutputs};
use crate::failure::CommandFailure;

/// Help of TARGET, in place of that of [`LoadCommonArgs`]: PTP has fixed ports.
const TARGET_HELP: &str = "Master: ADDRESS or NAME, without a port; a link-local address as \
                           IPV6%INTERFACE";

/// Load a PTP master, and verify every reply.
///
/// Over UDP, PTP uses the ports 319 (event) and 320 (general) at both ends; TARGET has no port.
/// Engines that simulate clients distinguish them by their addresses; the udp engine has one
/// client, because it binds these ports, and requires root or CAP_NET_BIND_SERVICE.
#[derive(Args, Debug)]
pub(crate) struct LoadPtpArgs {
    #[command(subcommand)]
    command: LoadPtpCommand,
}

#[derive(Subcommand, Debug)]
enum LoadPtpCommand {
    Delay(Box<LoadPtpDelayArgs>),
    Nsm(Box<LoadPtpNsmArgs>),
    Unicast(Box<LoadPtpUnicastArgs>),
}

/// Send delay requests, each answered by one delay response.
///
/// Requests go to the master's own address (as from slaves in unicast and hybrid mode), or with
/// --multicast to the PTP primary multicast address, which the master's replies use as well.
/// Messages that other PTP ports send to that address are not counted.
#[derive(Args, Debug)]
#[command(mut_arg("target", |target| target.help(TARGET_HELP)))]
struct LoadPtpDelayArgs {
    #[command(flatten)]
    run: LoadCommonArgs,
    #[command(flatten)]
    common: LoadPtpCommonArgs,
    /// Send to the group 224.0.1.129, ff0e::181 or 01:1b:19:00:00:00; TARGET is the master whose
    /// replies count.
    #[arg(long)]
    multicast: bool,
}

/// Send NetSync Monitor requests: delay requests that request a Sync as well.
///
/// The master must answer each request with a Delay_Resp and a Sync, and with a Follow_Up if the
/// Sync is two-step. A request counts as received when all of them arrived in time, and as lost if
/// any is missing; its round trip ends with the last of them. The columns "delay" (Delay_Resp) and
/// "sync/fw" (Sync and its Follow_Up; the name is ntpperf's) count them separately. The response
/// time is from the receipt of the request to the transmission of the Sync, by the master's own
/// timestamps.
#[derive(Args, Debug)]
#[command(mut_arg("target", |target| target.help(TARGET_HELP)))]
struct LoadPtpNsmArgs {
    #[command(flatten)]
    run: LoadCommonArgs,
    #[command(flatten)]
    common: LoadPtpCommonArgs,
}

/// Request unicast messages (negotiation): each request is granted or denied.
///
/// Each request has a new sourcePortIdentity, by which its reply is matched. To the master each
/// request is therefore a new client, to which it sends the granted messages for --grant-duration.
/// Granted messages are counted separately, not as replies.
#[derive(Args, Debug)]
#[command(mut_arg("target", |target| target.help(TARGET_HELP)))]
struct LoadPtpUnicastArgs {
    #[command(flatten)]
    run: LoadCommonArgs,
    #[command(flatten)]
    common: LoadPtpCommonArgs,
    #[command(flatten)]
    negotiation: UnicastNegotiationArgs,
}

// Options of the negotiation. No doc comment: it would be a help text.
#[derive(Args, Debug)]
pub(super) struct UnicastNegotiationArgs {
    /// Kinds of unicast messages to request, separated by commas; each request is for one of them,
    /// in turn.
    #[arg(
        long,
        value_enum,
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "announce,sync,delay-resp"
    )]
    messages: Vec<UnicastMessageArg>,
    /// Requested interval between unicast messages (logInterMessagePeriod), log2 of seconds.
    #[arg(long, value_name = "LOG2", default_value_t = 0, allow_negative_numbers = true)]
    message_interval: i8,
    /// Requested duration of the grants, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grant_duration: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum UnicastMessageArg {
    Announce,
    Sync,
    DelayResp,
}

impl UnicastNegotiationArgs {
    pub(super) fn request_kind(&self) -> Result<PtpRequestKind, CommandFailure> {
        let kinds: Vec<_> = self
            .messages
            .iter()
            .map(|message| match message {
                UnicastMessageArg::Announce => MessageType::Announce,
                UnicastMessageArg::Sync => MessageType::Sync,
                UnicastMessageArg::DelayResp => MessageType::DelayResp,
            })
            .collect();
        let messages =
            UnicastMessageTypes::new(&kinds).ok_or_else(|| CommandFailure::usage("no messages"))?;
        let (log_interval, duration_s) = (self.message_interval, self.grant_duration);
        Ok(PtpRequestKind::Unicast(UnicastRequestParameters { messages, log_interval, duration_s }))
    }
}

// Options common to all kinds. No doc comment: it would be a help text.
#[derive(Args, Debug)]
struct LoadPtpCommonArgs {
    #[command(flatten)]
    header: PtpHeaderArgs,
    /// Transport: UDP, or l2 (Ethernet without IP) to a master on the same link, whose MAC address
    /// is resolved from TARGET.
    ///
    /// l2 requires the engine xdp or packet. All clients then have the interface's MAC address, and
    /// NetSync Monitor has one client.
    #[arg(long, value_enum, default_value_t = PtpTransportArg::Udp)]
    transport: PtpTransportArg,
}

// Header fields of every request. No doc comment: it would be a help text.
#[derive(Args, Debug)]
pub(super) struct PtpHeaderArgs {
    /// PTP domain of the requests.
    #[arg(long, value_name = "N", default_value_t = 0)]
    domain: u8,
    /// PTP version of the requests; replies may be of either.
    #[arg(long, value_enum, value_name = "VERSION", default_value = "2.0")]
    ptp_version: PtpVersionArg,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PtpVersionArg {
    #[value(name = "2.0")]
    V2_0,
    #[value(name = "2.1")]
    V2_1,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PtpTransportArg {
    Udp,
    L2,
}

impl PtpHeaderArgs {
    /// Returns the plan of requests of this kind, sent over UDP to the master's own address.
    pub(super) fn plan(&self, kind: PtpRequestKind) -> PtpRequestOptions {
        let minor_version = match self.ptp_version {
            PtpVersionArg::V2_0 => 0,
            PtpVersionArg::V2_1 => 1,
        };
        let (domain, transport) = (self.domain, PtpLoadTransport::Udp);
        PtpRequestOptions { kind, domain, minor_version, multicast: false, transport }
    }
}

impl LoadPtpCommonArgs {
    fn plan(&self, kind: PtpRequestKind, multicast: bool) -> PtpRequestOptions {
        let transport = match self.transport {
            PtpTransportArg::Udp => PtpLoadTransport::Udp,
            PtpTransportArg::L2 => PtpLoadTransport::Ethernet,
        };
        PtpRequestOptions { multicast, transport, ..self.header.plan(kind) }
    }
}

impl LoadPtpArgs {
    pub(super) fn resolve(self) -> Result<(LoadOptions, LoadOutputs), CommandFailure> {
        let (run, plan) = match self.command {
            LoadPtpCommand::Delay(args) => {
                let plan = args.common.plan(PtpRequestKind::Delay, args.multicast);
                (args.run, plan)
            }
            LoadPtpCommand::Nsm(args) => {
                let plan = args.common.plan(PtpRequestKind::Nsm, false);
                (args.run, plan)
            }
            LoadPtpCommand::Unicast(args) => {
                let plan = args.common.plan(args.negotiation.request_kind()?, false);
                (args.run, plan)
            }
        };
        let (options, outputs) = run.resolve()?;
        Ok((LoadOptions { requests: RequestMix::only(plan), ..options }, outputs))
    }
}

//! `horolog load ptp`: what is asked of a PTP master.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::{Args, Subcommand, ValueEnum};
use horolog_load::LoadOptions;
use horolog_load::ptp::{Contract, Messages, PtpKind, PtpPlan, Transport};
use horolog_wire::ptp::MessageType;

use super::{Outputs, RunArgs};
use crate::failure::Failure;

/// Load a PTP master, and verify every answer.
///
/// Over UDP, PTP has the ports 319 and 320 at both ends. Engines with simulated clients tell them
/// apart by their addresses; the udp engine is one client and needs root or CAP_NET_BIND_SERVICE.
#[derive(Args, Debug)]
pub(crate) struct PtpArgs {
    #[command(subcommand)]
    mode: PtpModeArgs,
}

#[derive(Subcommand, Debug)]
enum PtpModeArgs {
    Delay(Box<DelayArgs>),
    Nsm(Box<NsmArgs>),
    Unicast(Box<UnicastArgs>),
}

/// Send delay requests: each is answered by one delay response.
///
/// To the master's own address (as slaves do in unicast and hybrid mode), or with --multicast to
/// the group of all PTP ports, where the master's answers go as well. Others' messages there are
/// not counted.
#[derive(Args, Debug)]
struct DelayArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    common: CommonArgs,
    /// Send to the group 224.0.1.129, ff0e::181 or 01:1b:19:00:00:00; TARGET is the master whose
    /// answers count.
    #[arg(long)]
    multicast: bool,
}

/// Send NetSync Monitor requests: delay requests that ask for a Sync as well.
///
/// A request is owed a delay response and a Sync, with a follow-up unless the Sync tells its own
/// time. It counts as received when all of them came in time, and as lost otherwise, whichever is
/// missing; its round trip ends with the last of them. The columns "delay" and "sync/fw" count each
/// kind. The response time is from the receipt of the request to the sending of the Sync, by the
/// master's own timestamps.
#[derive(Args, Debug)]
struct NsmArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// Ask for unicast messages (negotiation): each request is granted or denied.
///
/// Every request is that of a new PTP port, since the port's identity carries the request's token;
/// so the master has as many clients as requests within the duration, and sends to all of them what
/// it has granted. Those messages are counted apart; they are no replies.
#[derive(Args, Debug)]
struct UnicastArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    contract: ContractArgs,
}

// What is negotiated. No doc comment: it would be a help text.
#[derive(Args, Debug)]
pub(super) struct ContractArgs {
    /// Unicast messages to ask for, in turn; separated by commas.
    #[arg(
        long,
        value_enum,
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "announce,sync,delay-resp"
    )]
    messages: Vec<MessageArg>,
    /// Interval between these messages, log2 of seconds.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    log_interval: i8,
    /// For how many seconds they are asked for.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    duration: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum MessageArg {
    Announce,
    Sync,
    DelayResp,
}

impl ContractArgs {
    pub(super) fn kind(&self) -> Result<PtpKind, Failure> {
        let kinds: Vec<_> = self
            .messages
            .iter()
            .map(|message| match message {
                MessageArg::Announce => MessageType::Announce,
                MessageArg::Sync => MessageType::Sync,
                MessageArg::DelayResp => MessageType::DelayResp,
            })
            .collect();
        let messages = Messages::new(&kinds).ok_or_else(|| Failure::usage("no messages"))?;
        let (log_interval, duration_s) = (self.log_interval, self.duration);
        Ok(PtpKind::Unicast(Contract { messages, log_interval, duration_s }))
    }
}

// What all have in common. No doc comment: it would be a help text.
#[derive(Args, Debug)]
struct CommonArgs {
    #[command(flatten)]
    header: HeaderArgs,
    /// Over UDP, or over Ethernet without IP, by the engines xdp and packet and to a master on the
    /// same link, whose MAC address is found by its address TARGET. Over Ethernet all clients have
    /// the interface's MAC address, and NetSync Monitor has one client.
    #[arg(long, value_enum, default_value_t = TransportArg::Udp)]
    transport: TransportArg,
}

// What stands in the header of every request. No doc comment: it would be a help text.
#[derive(Args, Debug)]
pub(super) struct HeaderArgs {
    /// PTP domain of the requests.
    #[arg(long, value_name = "N", default_value_t = 0)]
    domain: u8,
    /// PTP version of the requests; answers may be of either.
    #[arg(long, value_enum, value_name = "VERSION", default_value = "2.0")]
    ptp_version: VersionArg,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum VersionArg {
    #[value(name = "2.0")]
    V2_0,
    #[value(name = "2.1")]
    V2_1,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum TransportArg {
    Udp,
    Ethernet,
}

impl HeaderArgs {
    /// Requests of this kind over UDP.
    pub(super) fn plan(&self, kind: PtpKind) -> PtpPlan {
        let minor_version = match self.ptp_version {
            VersionArg::V2_0 => 0,
            VersionArg::V2_1 => 1,
        };
        let (domain, transport) = (self.domain, Transport::Udp);
        PtpPlan { kind, domain, minor_version, multicast: false, transport }
    }
}

impl CommonArgs {
    fn plan(&self, kind: PtpKind, multicast: bool) -> PtpPlan {
        let transport = match self.transport {
            TransportArg::Udp => Transport::Udp,
            TransportArg::Ethernet => Transport::Ethernet,
        };
        PtpPlan { multicast, transport, ..self.header.plan(kind) }
    }
}

impl PtpArgs {
    pub(super) fn resolve(self) -> Result<(LoadOptions, Outputs), Failure> {
        let (run, plan) = match self.mode {
            PtpModeArgs::Delay(args) => {
                let plan = args.common.plan(PtpKind::Delay, args.multicast);
                (args.run, plan)
            }
            PtpModeArgs::Nsm(args) => {
                let plan = args.common.plan(PtpKind::Nsm, false);
                (args.run, plan)
            }
            PtpModeArgs::Unicast(args) => {
                let plan = args.common.plan(args.contract.kind()?, false);
                (args.run, plan)
            }
        };
        let (options, outputs) = run.resolve()?;
        Ok((LoadOptions { ptp: Some(plan), ..options }, outputs))
    }
}

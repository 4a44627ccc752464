//! `horolog load mix`: several kinds of requests at once.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::str::FromStr;

use clap::Args;
use horolog_load::mix::{MixPart, RequestMix};
use horolog_load::ptp::PtpRequestKind;
use horolog_load::request_kind::{NtpRequestOptions, RequestKind};
use horolog_load::{LoadError, LoadOptions};

use super::flags::TrailerArgs;
use super::nts::RequestNtsArgs;
use super::ptp::{PtpHeaderArgs, UnicastNegotiationArgs};
use super::{LoadCommonArgs, LoadOutputs};
use crate::failure::CommandFailure;

/// Send several kinds of requests at once, each with its share of the rate, as the clients of a
/// real server do, and count them together and by kind.
///
/// --clients are divided among the kinds by weight, at least one for each; without it, each kind
/// has the engine's default. Each kind has a part of the clients' network, and at least one sending
/// thread, except with the xdp engine, where each thread sends all kinds.
/// --loss-ratio applies to all kinds together. A port in TARGET is the NTP port; PTP requests use
/// 319 and 320. --pcap and --compliant-clients are refused.
#[derive(Args, Debug)]
pub(crate) struct LoadMixArgs {
    #[command(flatten)]
    run: LoadCommonArgs,
    /// Kinds of requests with their weights, separated by commas: ntp, ntp-v1, ntp-v2, ntp-v3,
    /// ntp-interleaved, ntp-nts (with --nts or --nts-cookie), ntp-mac (with --key), ptp-delay,
    /// ptp-nsm, ptp-unicast.
    #[arg(
        short,
        long,
        value_name = "KIND=WEIGHT,...",
        value_delimiter = ',',
        required = true,
        num_args = 1
    )]
    weights: Vec<WeightedRequestKind>,
    #[command(flatten)]
    nts: RequestNtsArgs,
    #[command(flatten)]
    trailer: TrailerArgs,
    #[command(flatten)]
    header: PtpHeaderArgs,
    #[command(flatten)]
    negotiation: UnicastNegotiationArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MixRequestKind {
    Ntp(u8),
    Interleaved,
    Nts,
    Mac,
    PtpDelay,
    PtpNsm,
    PtpUnicast,
}

impl MixRequestKind {
    const ALL: [(&str, Self); 10] = [
        ("ntp", Self::Ntp(4)),
        ("ntp-v1", Self::Ntp(1)),
        ("ntp-v2", Self::Ntp(2)),
        ("ntp-v3", Self::Ntp(3)),
        ("ntp-interleaved", Self::Interleaved),
        ("ntp-nts", Self::Nts),
        ("ntp-mac", Self::Mac),
        ("ptp-delay", Self::PtpDelay),
        ("ptp-nsm", Self::PtpNsm),
        ("ptp-unicast", Self::PtpUnicast),
    ];
}

/// Kind of requests with its weight, parsed from `KIND=WEIGHT` such as `ntp=70`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct WeightedRequestKind {
    name: &'static str,
    kind: MixRequestKind,
    share: f64,
}

impl FromStr for WeightedRequestKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, weight) = text.split_once('=').ok_or("expected KIND=WEIGHT, such as ntp=70")?;
        let found = MixRequestKind::ALL.into_iter().find(|(known, _)| *known == name.trim());
        let (name, kind) = found.ok_or_else(|| {
            let names = MixRequestKind::ALL.map(|(name, _)| name);
            format!("unknown kind '{name}'; use one of {}", names.join(", "))
        })?;
        let share = weight.trim().parse().map_err(|_| format!("'{weight}' is not a weight"))?;
        Ok(Self { name, kind, share })
    }
}

impl LoadMixArgs {
    pub(super) fn resolve(self) -> Result<(LoadOptions, LoadOutputs), CommandFailure> {
        let trailer = self.trailer.resolve()?;
        let imported = self.nts.imported_session()?;
        let (mut options, outputs) = self.run.resolve()?;
        options.command = self.nts.redact_command(options.command);
        let nts = self.nts.resolve(&options.target, imported)?;
        let has_kind = |kind| self.weights.iter().any(|one| one.kind == kind);
        let requirements = [
            (
                has_kind(MixRequestKind::Nts),
                nts.is_some(),
                "ntp-nts",
                "--nts with --ca, or --nts-cookie",
            ),
            (has_kind(MixRequestKind::Mac), trailer.mac.is_some(), "ntp-mac", "--key and --keys"),
        ];
        for (is_wanted, is_configured, kind, flags) in requirements {
            if is_wanted && !is_configured {
                return Err(CommandFailure::usage(format!("{kind} requires {flags}")));
            }
            if is_configured && !is_wanted {
                let reason = format!("no weight is given to {kind}, which takes {flags}");
                return Err(CommandFailure::usage(reason));
            }
        }
        if !trailer.fields.is_empty() && !has_kind(MixRequestKind::Mac) {
            return Err(CommandFailure::usage("--extension requires ntp-mac with a weight"));
        }
        let mix_part =
            |&WeightedRequestKind { name, kind, share: weight }: &WeightedRequestKind| {
                let defaults = NtpRequestOptions::default();
                let request_kind = match kind {
                    MixRequestKind::Ntp(version) => {
                        RequestKind::Ntp(NtpRequestOptions { version, ..defaults })
                    }
                    MixRequestKind::Interleaved => {
                        RequestKind::Ntp(NtpRequestOptions::interleaved())
                    }
                    MixRequestKind::Nts => RequestKind::ntp(defaults, nts.clone())?,
                    MixRequestKind::Mac => {
                        RequestKind::Ntp(NtpRequestOptions { trailer: trailer.clone(), ..defaults })
                    }
                    MixRequestKind::PtpDelay => {
                        RequestKind::Ptp(self.header.plan(PtpRequestKind::Delay))
                    }
                    MixRequestKind::PtpNsm => {
                        RequestKind::Ptp(self.header.plan(PtpRequestKind::Nsm))
                    }
                    MixRequestKind::PtpUnicast => {
                        RequestKind::Ptp(self.header.plan(self.negotiation.request_kind()?))
                    }
                };
                Ok(MixPart { name: name.to_owned(), weight, request_kind })
            };
        let parts = self.weights.iter().map(mix_part).collect::<Result<_, CommandFailure>>()?;
        options.requests = RequestMix::several(parts).map_err(LoadError::from)?;
        Ok((options, outputs))
    }
}

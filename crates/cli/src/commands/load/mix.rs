//! `horolog load mix`: several kinds of requests at once.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::str::FromStr;

use clap::Args;
use horolog_load::LoadOptions;
use horolog_load::mix::{Asks, NtpAsks, Part};
use horolog_load::ptp::PtpKind;

use super::additions::AdditionsArgs;
use super::nts::NtsArgs;
use super::ptp::{ContractArgs, HeaderArgs};
use super::{Outputs, RunArgs};
use crate::failure::Failure;

/// Send several kinds of requests at once, each with its share of the rate, as the clients of a
/// real server do; all are counted together, and each kind apart.
///
/// Each kind has its own clients and a part of the clients' network. Each has at least one sending
/// thread, but in the kernel, where all kinds are sent by each thread. A loss goal is held against
/// all of them together. A port of TARGET is that of NTP.
#[derive(Args, Debug)]
pub(crate) struct MixArgs {
    #[command(flatten)]
    run: RunArgs,
    /// The kinds of requests and their weights, separated by commas: ntp, ntp-v1, ntp-v2, ntp-v3,
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
    weights: Vec<Weight>,
    #[command(flatten)]
    nts: NtsArgs,
    #[command(flatten)]
    additions: AdditionsArgs,
    #[command(flatten)]
    header: HeaderArgs,
    #[command(flatten)]
    contract: ContractArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ntp(u8),
    Interleaved,
    Nts,
    Mac,
    PtpDelay,
    PtpNsm,
    PtpUnicast,
}

impl Kind {
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

/// A kind of requests with its weight.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Weight {
    name: &'static str,
    kind: Kind,
    share: f64,
}

impl FromStr for Weight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, weight) = text.split_once('=').ok_or("write KIND=WEIGHT, such as ntp=70")?;
        let known = Kind::ALL.into_iter().find(|(known, _)| *known == name.trim());
        let (name, kind) = known.ok_or_else(|| {
            let names = Kind::ALL.map(|(name, _)| name);
            format!("there is no kind '{name}'; take one of {}", names.join(", "))
        })?;
        let share = weight.trim().parse().map_err(|_| format!("'{weight}' is no weight"))?;
        Ok(Self { name, kind, share })
    }
}

impl MixArgs {
    pub(super) fn resolve(self) -> Result<(LoadOptions, Outputs), Failure> {
        let additions = self.additions.resolve()?;
        let sessions = self.nts.given()?;
        let (mut options, outputs) = self.run.resolve()?;
        options.command = self.nts.hide(options.command);
        let nts = self.nts.resolve(&options.target)?;
        let authenticated = nts.is_some() || sessions.is_some();
        let has = |wanted| self.weights.iter().any(|one| one.kind == wanted);
        let wants = [
            (has(Kind::Nts), authenticated, "ntp-nts", "--nts with --ca, or --nts-cookie"),
            (has(Kind::Mac), additions.mac.is_some(), "ntp-mac", "--key and --keys"),
        ];
        for (is_wanted, is_given, kind, flags) in wants {
            if is_wanted && !is_given {
                return Err(Failure::usage(format!("{kind} takes {flags}; give them as well")));
            }
            if is_given && !is_wanted {
                let reason = format!("no weight is given to {kind}, which takes {flags}");
                return Err(Failure::usage(reason));
            }
        }
        if !additions.fields.is_empty() && !has(Kind::Mac) {
            return Err(Failure::usage("--extension goes with ntp-mac; give it a weight"));
        }
        let part = |&Weight { name, kind, share: weight }: &Weight| {
            let plain = NtpAsks::default();
            let asks = match kind {
                Kind::Ntp(version) => Asks::Ntp(NtpAsks { version, ..plain }),
                Kind::Interleaved => Asks::Ntp(NtpAsks { interleaved: true, ..plain }),
                Kind::Nts => {
                    let (nts, sessions) = (nts.clone(), sessions.clone());
                    Asks::Ntp(NtpAsks { nts, sessions, ..plain })
                }
                Kind::Mac => Asks::Ntp(NtpAsks { additions: additions.clone(), ..plain }),
                Kind::PtpDelay => Asks::Ptp(self.header.plan(PtpKind::Delay)),
                Kind::PtpNsm => Asks::Ptp(self.header.plan(PtpKind::Nsm)),
                Kind::PtpUnicast => Asks::Ptp(self.header.plan(self.contract.kind()?)),
            };
            Ok(Part { name: name.to_owned(), weight, asks })
        };
        let mix = self.weights.iter().map(part).collect::<Result<_, Failure>>()?;
        Ok((LoadOptions { mix, ..options }, outputs))
    }
}

//! The engines that a tree of relays can be measured with.

use horolog_relay::{EngineKind, Kernel, Relay, Spec};

use crate::failure::Failure;

/// What makes the copies of a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Maker {
    /// One system call for each.
    Send,
    /// One for many.
    Sendmmsg,
    /// The kernel's driver path.
    Xdp,
}

impl Maker {
    const ALL: [Self; 3] = [Self::Send, Self::Sendmmsg, Self::Xdp];
    /// Host-based relaying as it is commonly done, and below the host.
    pub(super) const USUAL: [Self; 2] = [Self::Send, Self::Xdp];

    /// Reads a name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        // A private host has all that the best of them needs.
        let found = Self::ALL.into_iter().find(|maker| maker.name() == text);
        found.or((text == "auto").then_some(Self::Xdp)).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("write auto, {names}, or two of them with a comma between")
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Send => EngineKind::Send.name(),
            Self::Sendmmsg => EngineKind::Sendmmsg.name(),
            Self::Xdp => "xdp",
        }
    }

    /// Starts a relay in the network namespace of the calling thread.
    pub(super) fn start(self, spec: &Spec) -> Result<Relay, Failure> {
        let (host, kernel) = match self {
            Self::Send => (EngineKind::Send, None),
            Self::Sendmmsg => (EngineKind::Sendmmsg, None),
            Self::Xdp => {
                let kernel = Kernel::load(&[]).map_err(Failure::environment)?;
                (EngineKind::Sendmmsg, Some(kernel))
            }
        };
        let relay = Relay::start(spec, host, kernel)?;
        in_its_place(&relay).map(|()| relay)
    }
}

/// Refuses a relay whose copies are not made by the engine that it was given: figures of another
/// would be wrong ones.
pub(super) fn in_its_place(relay: &Relay) -> Result<(), Failure> {
    let refused = relay.listing().groups.into_iter().find_map(|group| group.not_in_kernel);
    refused.map_or(Ok(()), |why| {
        Err(Failure::environment(format!("copies cannot be made below the host: {why}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_have_the_names_of_those_of_a_relay() {
        for maker in Maker::ALL {
            assert_eq!(Maker::parse(maker.name()), Ok(maker));
        }
        assert_eq!(Maker::parse("auto"), Ok(Maker::Xdp));
        assert!(Maker::parse("fast").unwrap_err().starts_with("write auto, send, sendmmsg, xdp"));
    }
}

//! Scenarios of `horolog path udp` with datagrams shorter than a whole header of its own format.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use crate::path_udp::Path;
use crate::{ROOT_AND_IPV6, path_udp_short, scenarios};

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    Vec::from(scenarios!(ROOT_AND_IPV6, path_udp_short: short_datagrams_yield_every_statistic))
}

/// As short as messages of market data, in both families, both ways of sending and with all that
/// may be asked of them.
fn short_datagrams_yield_every_statistic() -> Result<()> {
    for ipv6 in [false, true] {
        let path = Path::new(ipv6)?;
        for more in
            [&["-r", "1k", "--timestamps"][..], &["--dscp", "ef", "-R", "2", "--flows", "2"]]
        {
            let options = ["-s", "16,17,32,47,48", "-n", "100", "--load-destination", "unicast"];
            let result = path.measured(path.at, &[&options[..], more].concat())?;
            let lengths: Vec<_> = result.rows.iter().map(|row| row.length).collect();
            ensure!(lengths == [16, 17, 32, 47, 48], "{lengths:?}");
            for row in &result.rows {
                ensure!((row.counts.sent, row.counts.received) == (100, 100), "{row:?}");
                ensure!(row.counts.invalid == 0, "{row:?}");
                let (there, back) = row.forward.zip(row.backward).context("no directions")?;
                ensure!((there.lost, back.lost) == (0, 0), "{row:?}");
                let (there, back) = row
                    .forward_ns
                    .as_ref()
                    .zip(row.backward_ns.as_ref())
                    .context("no one-way times")?;
                ensure!((there.count, back.count) == (100, 100), "{row:?}");
                let far = row.far_ns.as_ref().context("no time of the far end")?;
                ensure!(far.max < 100_000_000, "{far:?}");
                let classes = (row.dscp_forward, row.dscp_backward);
                ensure!(more[0] != "--dscp" || classes == (Some(46), Some(46)), "{classes:?}");
            }
        }
    }
    Ok(())
}

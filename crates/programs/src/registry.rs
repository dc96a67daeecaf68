//! The built-in programs by name.

use pagewalk_stream::{Error, Program};
use pagewalk_units::{RunOption, Text};

use crate::entry::{Entry, Options, Values, did_you_mean};
use crate::info::WorkloadInfo;
use crate::{churn, dlrm, graph, gups, kmer, kv, mummer, sysbench, xsbench};

/// Every built-in program, in the order in which they are listed to users.
pub fn workloads() -> impl Iterator<Item = &'static WorkloadInfo> + Clone {
    PROGRAMS.iter().map(|p| &p.info)
}

static PROGRAMS: &[Entry] = &[
    gups::ENTRY,
    graph::bfs::ENTRY,
    graph::dfs::ENTRY,
    graph::cc::ENTRY,
    graph::dc::ENTRY,
    graph::pr::ENTRY,
    graph::sssp::ENTRY,
    graph::gc::ENTRY,
    graph::tc::ENTRY,
    graph::bc::ENTRY,
    sysbench::ENTRY,
    churn::ENTRY,
    xsbench::ENTRY,
    dlrm::ENTRY,
    kmer::ENTRY,
    mummer::ENTRY,
    kv::HASH,
    kv::DENSE,
    kv::MAP,
    kv::BTREE,
    kv::FLAT,
    kv::REDIS,
];

/// The built-in program `name`.
///
/// # Errors
/// An unknown name or parameter (with the nearest right one), a value out of range, or more threads than the
/// program supports.
pub fn build(name: &str, options: &Options) -> Result<Box<dyn Program>, Error> {
    let Some(program) = PROGRAMS.iter().find(|p| p.info.name == name) else {
        return Err(Error::about(
            RunOption::Workload,
            Text::default(),
            format!(
                "no built-in program `{name}`; {}",
                did_you_mean(name, workloads().map(|w| w.name))
            ),
        ));
    };
    let info = &program.info;
    if !(1..=info.max_threads).contains(&options.threads) {
        return Err(Error::about(
            RunOption::Threads,
            format!("{} threads; ", options.threads),
            format!("expected 1 to {}", info.max_threads),
        )
        .at(name));
    }
    for given in options.params.keys() {
        if !info.params.iter().any(|p| p.name == given) {
            return Err(Error::about(
                RunOption::Params,
                Text::default(),
                format!(
                    "{name} has no parameter `{given}`; {}",
                    did_you_mean(given, info.params.iter().map(|p| p.name))
                ),
            ));
        }
    }
    (program.build)(&Values::new(info, options))
}

#[cfg(test)]
mod tests {
    use super::{build, workloads};
    use crate::entry::Options;

    fn refused(name: &str, options: &Options) -> String {
        match build(name, options) {
            Ok(_) => panic!("{name} accepted {options:?}"),
            Err(e) => e.to_string(),
        }
    }

    fn with(params: &[(&str, &str)]) -> Options {
        Options {
            params: params
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            ..Options::default()
        }
    }

    #[test]
    fn every_listed_program_builds_with_its_defaults() {
        for info in workloads() {
            // Scale 12: graphs of the default size take minutes to generate.
            let options = match info.group {
                "graph" => with(&[("scale", "12")]),
                _ => Options::default(),
            };
            let facts = build(info.name, &options).unwrap().facts();
            assert!(facts.deterministic && facts.has_roi);
            assert!(facts.name.starts_with(info.name), "{}", facts.name);
        }
    }

    #[test]
    fn mistakes_name_the_nearest_right_thing() {
        assert!(refused("gusp", &Options::default()).contains("`gups`"));
        assert!(refused("zzz", &Options::default()).contains("gups, bfs, dfs"));
        assert!(refused("gups", &with(&[("update", "5")])).contains("`updates`"));
        assert!(refused("bfs", &with(&[("graph", "kroneker")])).contains("`kronecker`"));
        assert!(refused("bfs", &with(&[("scale", "99")])).contains("12 to 31"));
        assert!(refused("bfs", &with(&[("scale", "many")])).contains("whole number"));
    }

    #[test]
    fn threads_and_sizes_out_of_range_are_refused() {
        for threads in [0, 17] {
            let options = Options {
                threads,
                ..Options::default()
            };
            assert!(refused("gups", &options).contains("1 to 16"));
        }
        let options = Options {
            size_bytes: Some(3 << 30),
            ..Options::default()
        };
        assert!(refused("gups", &options).contains("power of two"));
    }
}

//! An installation of Pagewalk. It carries out specifications: it resolves designs, opens programs,
//! records and runs.

use std::path::{Path, PathBuf};
use std::time::Instant;

use pagewalk_live::{LiveOptions, LiveRecording};
use pagewalk_os::{PlacementSpec, RecordedSpec};
use pagewalk_stream::{Death, Error, Facts, Mix, Opens, Program, Unseen};
use pagewalk_trace::{Header, OpenOptions, Recording, TraceWriter};
use pagewalk_units::{Part, RunOption, Text, text};

use crate::config::{DataDir, DesignName, cores_for, label};
use crate::limits::{FilteredLength, Sample, Warming};
use crate::options::{Design, OnMachine};
use crate::os_text::OsText;
use crate::precise;
use crate::results::{DesignResult, PERFECT, RunResult, compare_programs};
use crate::reuse;
use crate::run::{EarlyCheck, Pace, Progress, Stream, run, run_unless};
use crate::session::{ProgramClock, RecordResult, RecordSpec, RunSpec, SourceSpec};
use crate::settled;
use crate::shards::{self, RemoteHosts, RemoteRun};

/// Locations of the files that are not part of this binary.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Folder with `machines/` and `designs/`.
    pub data: DataDir,
    /// The shared object that QEMU loads.
    pub plugin: PathBuf,
}

fn no_source() -> Error {
    Error::refused(text![
        "no program is given: expected ",
        Part::OptionForm(RunOption::Workload, "NAME".to_owned()),
        ", ",
        Part::OptionForm(RunOption::Trace, "FILE".to_owned()),
        " or ",
        Part::OptionForm(RunOption::Program, "PROGRAM".to_owned()),
    ])
}

/// Regions exist only in traces.
fn regions_without_trace() -> Error {
    Error::option(
        RunOption::Regions,
        text![
            "regions are places of a trace; expected ",
            RunOption::Trace,
            ", with the trace that they are of ('pagewalk record' makes one of any program)",
        ],
    )
}

/// Remote hosts do not simulate regions.
fn regions_on_cluster() -> Error {
    Error::option(
        RunOption::Cluster,
        text![
            "other hosts simulate samples (",
            RunOption::Sample,
            ", ",
            RunOption::Precision,
            "), and regions are simulated by this one; drop ",
            RunOption::Cluster,
            ", or ",
            RunOption::Regions,
        ],
    )
}

impl Installation {
    /// An installation with all its files in `folder`.
    pub fn at(folder: &Path) -> Self {
        Installation {
            data: DataDir(folder.to_owned()),
            plugin: folder.join("libpagewalk_qemu.so"),
        }
    }

    /// Designs of `spec` with their configurations.
    ///
    /// # Errors
    /// A mistake in a configuration, with its place.
    pub fn resolve(&self, spec: &RunSpec) -> Result<Vec<Design>, Error> {
        self.resolve_for(spec, cores_for(spec.threads()))
    }

    /// As [`Installation::resolve`]. Machines that do not say how many have `cores`.
    fn resolve_for(&self, spec: &RunSpec, cores: u8) -> Result<Vec<Design>, Error> {
        let machines = spec.options.machine.names();
        let on: Vec<String> = machines.iter().map(|m| label(m)).collect();
        if let Some((i, twice)) = on.iter().enumerate().find(|(i, m)| on[..*i].contains(m)) {
            return Err(Error::option(
                RunOption::Machine,
                format!(
                    "{} and {} are both called {twice}: expected each machine once, with a name of its own",
                    machines[on.iter().position(|m| m == twice).unwrap_or(0)],
                    machines[i]
                ),
            ));
        }
        let named: Vec<DesignName> = spec
            .designs
            .iter()
            .map(|name| DesignName::parse(name))
            .collect::<Result<_, _>>()?;
        let labels: Vec<String> = named.iter().map(DesignName::label).collect();
        self.data.check_targets(&spec.set, &labels, &on)?;
        let pairs = machines
            .iter()
            .flat_map(|m| spec.designs.iter().map(move |d| (m, d)));
        let designs = pairs
            .map(|(m, d)| self.design(m, d, spec, &spec.set, cores))
            .collect::<Result<Vec<_>, _>>()?;
        let is_recorded = |d: &Design| matches!(d.config.placement, PlacementSpec::Recorded(_));
        if spec.options.frames.is_some() && !designs.iter().any(is_recorded) {
            return Err(Error::option(
                RunOption::Frames,
                text![
                    "no design places pages by hash, so the file would have no effect; expected a design with ",
                    Part::key("placement.tiered_hash"),
                    ", such as revelator"
                ],
            ));
        }
        if let Some(SourceSpec::Workload {
            size: Some(size), ..
        }) = &spec.source
        {
            fits(size, &designs)?;
        }
        Ok(designs)
    }

    fn design(
        &self,
        machine: &str,
        name: &str,
        spec: &RunSpec,
        set: &[String],
        cores: u8,
    ) -> Result<Design, Error> {
        let design = DesignName::parse(name)?;
        let (mut resolved, description) = self.data.described(machine, name, set, cores)?;
        let placement = &mut resolved.config.placement;
        if let (Some(file), PlacementSpec::TieredHash(_)) = (&spec.options.frames, &*placement) {
            let file = file.clone();
            *placement = PlacementSpec::Recorded(RecordedSpec { file });
        }
        let on = (spec.options.machine.names().len() > 1).then(|| OnMachine {
            machine: label(machine),
            design: design.label(),
        });
        Ok(Design {
            name: match &on {
                None => design.label(),
                Some(on) => format!("{} on {}", on.design, on.machine),
            },
            on,
            description,
            config: resolved.config,
            shortcut: None,
            beside: false,
        })
    }

    /// The perfect-TLB design on `machine`. A setting that it cannot take is dropped: the user did not
    /// name this design, so such a setting does not refer to it.
    fn reference(&self, machine: &str, spec: &RunSpec, cores: u8) -> Result<Design, Error> {
        let mut set = Vec::with_capacity(spec.set.len());
        for one in &spec.set {
            set.push(one.clone());
            if self.design(machine, PERFECT, spec, &set, cores).is_err() {
                set.pop();
            }
        }
        self.design(machine, PERFECT, spec, &set, cores)
    }

    /// Designs of `spec` for a program with so many `threads`, and beside them the perfect-TLB design of each
    /// machine for [`Options::translation_cost`](crate::Options::translation_cost). Left out if it is already
    /// one of them, shares no stream with them, or is no longer perfect because of a setting.
    fn designs(&self, spec: &RunSpec, threads: Option<u32>) -> Result<Vec<Design>, Error> {
        let cores = cores_for(threads);
        let mut designs = self.resolve_for(spec, cores)?;
        if !spec.options.translation_cost {
            return Ok(designs);
        }
        if let Some(SourceSpec::Mix { .. }) = spec.source {
            return Err(Error::option(
                RunOption::TranslationCost,
                "not defined for a mix, whose designs do not do the same work; run its programs one by one",
            ));
        }
        let given = designs.iter().any(|d| d.own_name() == PERFECT);
        if !given && designs.iter().any(|d| !d.has_shortcut()) {
            for machine in spec.options.machine.names() {
                let reference = self.reference(machine, spec, cores)?;
                if reference.config.mmu.perfect {
                    designs.push(Design {
                        beside: true,
                        ..reference
                    });
                }
            }
        }
        Ok(designs)
    }

    /// Opens a program.
    ///
    /// # Errors
    /// No such program or file, wrong parameters, a file in no known format.
    pub fn open(&self, source: &SourceSpec, seed: u64) -> Result<Box<dyn Program>, Error> {
        match source {
            SourceSpec::Workload {
                name,
                size,
                threads,
                params,
            } => {
                let size_bytes = size
                    .as_deref()
                    .map(pagewalk_programs::parse_size)
                    .transpose()?;
                let options = pagewalk_programs::Options {
                    size_bytes,
                    threads: *threads,
                    seed,
                    params: params.clone(),
                };
                pagewalk_programs::build(name, &options)
            }
            SourceSpec::Trace { path } => {
                Ok(pagewalk_trace::open_trace(path, &OpenOptions::default())?)
            }
            SourceSpec::Program { argv, cpu, clock } => {
                pagewalk_live::launch(self.live_options(argv, cpu.as_deref(), *clock, [0; 2]))
            }
            SourceSpec::Mix { programs } => {
                if programs.len() < 2 {
                    return Err(Error::option(
                        RunOption::Mix,
                        "expected two programs or more, such as gups,bfs",
                    ));
                }
                let opens = programs.iter().map(|one| self.opens(one, seed));
                let opens = opens.collect::<Result<_, _>>()?;
                Ok(Box::new(Mix::new(opens)?))
            }
        }
    }

    /// Function that opens a program of a mix each time it is called.
    fn opens(&self, source: &SourceSpec, seed: u64) -> Result<Opens, Error> {
        if let SourceSpec::Program { .. } | SourceSpec::Mix { .. } = source {
            return Err(Error::option(
                RunOption::Mix,
                "expected built-in programs and traces; record a live program first",
            ));
        }
        let (installation, source) = (self.clone(), source.clone());
        Ok(Box::new(move || installation.open(&source, seed)))
    }

    /// As [`Installation::open`], for the run `spec`. A live program sees the pools of huge pages of `design`.
    fn open_for(
        &self,
        design: &Design,
        source: &SourceSpec,
        spec: &RunSpec,
    ) -> Result<Box<dyn Program>, Error> {
        match source {
            SourceSpec::Program { argv, cpu, clock } => {
                let pools = design.config.os.hugetlb;
                let pages = [pools.pages_2mb, pools.pages_1gb];
                pagewalk_live::launch(LiveOptions {
                    ordered_marks: spec.options.limits.roi,
                    ..self.live_options(argv, cpu.as_deref(), *clock, pages)
                })
            }
            _ => self.open(source, spec.options.seed),
        }
    }

    fn live_options(
        &self,
        argv: &[OsText],
        cpu: Option<&str>,
        clock: ProgramClock,
        huge_pages: [u64; 2],
    ) -> LiveOptions {
        LiveOptions {
            simulated_clock: clock == ProgramClock::Simulated,
            huge_pages,
            argv: argv.iter().map(|text| text.0.clone()).collect(),
            plugin: self.plugin.clone(),
            cpu: cpu.map(str::to_owned),
            ..LiveOptions::default()
        }
    }

    /// Records a program into a file of our format, at full speed. Calls `progress` about five times a
    /// second with the instructions so far and the seconds; it returns false to stop. The recording is
    /// then complete up to that point and marked as stopped.
    ///
    /// # Errors
    /// A program that does not open, a file that cannot be written.
    pub fn record(
        &self,
        spec: &RecordSpec,
        path: &Path,
        progress: &mut dyn FnMut(u64, f64) -> bool,
    ) -> Result<RecordResult, Error> {
        let start = Instant::now();
        let mut pace = Pace::default();
        let mut partial = false;
        let mut go_on = |done: u64| {
            let goes_on = !pace.is_due() || progress(done, start.elapsed().as_secs_f64());
            partial |= !goes_on;
            goes_on
        };
        let create = |facts: &Facts| {
            let header = Header {
                memory: spec.memory,
                ..Header::of(facts, spec.seed, &facts.name)
            };
            TraceWriter::create(path, &header)
        };
        let (facts, exit_status, died, written);
        let mut unseen = Vec::new();
        if let SourceSpec::Program { argv, cpu, clock } = &spec.source {
            if *clock == ProgramClock::Simulated {
                return Err(Error::option(
                    RunOption::Clock,
                    "nothing is simulated during a recording; drop it, or run the program",
                ));
            }
            // Without the operations that only a simulation needs.
            let options = self.live_options(argv, cpu.as_deref(), *clock, [0; 2]);
            let mut recording = LiveRecording::launch(options, spec.memory, create)?;
            recording
                .run(spec.instructions, &mut go_on)
                .map_err(Error::into_failed)?;
            if partial {
                recording.stopped();
            }
            (facts, exit_status) = (recording.facts(), recording.exit_status());
            unseen = Unseen::sentences(recording.unseen());
            died = Death::sentences(recording.deaths());
            written = recording.finish().map_err(Error::into_failed)?;
        } else {
            if spec.memory {
                return Err(Error::refused(
                    "only the memory of a live program can be recorded; expected -- PROGRAM ARGS…",
                ));
            }
            let program = self.open(&spec.source, spec.seed)?;
            let writer = create(&program.facts())?;
            let mut recording = Recording::new(program, writer);
            pagewalk_trace::record_into(&mut recording, spec.instructions, &mut go_on)
                .map_err(Error::into_failed)?;
            if partial {
                recording.stopped();
            }
            (facts, exit_status) = (recording.facts(), recording.exit_status());
            died = Death::sentences(recording.deaths());
            written = recording.finish().map_err(Error::into_failed)?;
        }
        Ok(RecordResult {
            path: path.to_owned(),
            source: facts.name,
            partial: partial || !died.is_empty(),
            instructions: written.instructions,
            ops: written.ops,
            bytes: written.bytes,
            exit_status,
            died,
            unseen,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// Carries out `spec`.
    ///
    /// # Errors
    /// A mistake of the user, or an internal failure.
    pub fn run(
        &self,
        spec: &RunSpec,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<RunResult, Error> {
        self.run_with(spec, None, progress)
    }

    /// As [`Installation::run`], with remote `hosts` that simulate samples of a recording.
    ///
    /// # Errors
    /// Also, samples that cannot be divided into shards.
    pub fn run_with(
        &self,
        spec: &RunSpec,
        hosts: Option<&dyn RemoteHosts>,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<RunResult, Error> {
        if let Some(regions) = &spec.options.regions {
            if !matches!(spec.source, None | Some(SourceSpec::Trace { .. })) {
                return Err(regions_without_trace());
            }
            regions.validate(&spec.options)?;
            if hosts.is_some() {
                return Err(regions_on_cluster());
            }
        }
        if let Some(SourceSpec::Program { clock, .. }) = &spec.source
            && *clock == ProgramClock::Simulated
            && let Some(sampled) = is_sampled(spec)
        {
            return Err(Error::option(
                RunOption::Clock,
                text![
                    "between samples no time is simulated; expected a part that is simulated as a whole (",
                    RunOption::Roi,
                    ", ",
                    RunOption::Instructions,
                    ") instead of ",
                    sampled
                ],
            ));
        }
        let found = self.with_length_of_warming(spec, progress)?;
        let spec = found.as_ref().unwrap_or(spec);
        let mut result = match &spec.options.precision {
            None => self.run_once(spec, hosts, None, progress),
            Some(wanted) => precise::run(spec, wanted, &mut |s, early| {
                if hosts.is_none() || s.options.limits.sample.is_some() {
                    return self.run_once(s, hosts, early, progress);
                }
                let mut result = self.run_once(s, None, early, progress)?;
                result.warnings.push(
                    "--cluster: so much precision takes all instructions, and no samples: this host simulated them".to_owned(),
                );
                Ok(result)
            }),
        }?;
        self.add_settled(spec, hosts.is_none(), &mut result, progress)?;
        Ok(result)
    }

    /// Simulates shard `number` out of `of` of the run `spec`, as [`RemoteHosts`] requested it. Returns
    /// the text of its result.
    ///
    /// # Errors
    /// As for [`Installation::run`], and a recording whose shards differ on this host.
    pub fn shard(
        &self,
        spec: &RunSpec,
        (number, of): (usize, usize),
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<String, Error> {
        let designs = self.designs(spec, spec.threads())?;
        let source = spec.source.as_ref().ok_or_else(no_source)?;
        let program = self.open(source, spec.options.seed)?;
        let facts = program.facts();
        let options = spec.options();
        let all = shards::shards(&designs, &options, &facts).map_err(Error::refused)?;
        let shard = all.get(number).filter(|_| all.len() == of);
        let shard = *shard.ok_or_else(|| {
            Error::refused(format!("the trace has {} shards here, and {of} there; expected the same file at the same path", all.len()))
        })?;
        let stream = Stream {
            program,
            designs: (0..designs.len()).collect(),
        };
        shards::one(&designs, (&facts, vec![stream]), &options, shard, progress)
    }

    /// `spec` with the length of filtered warming filled in, if it is `auto`.
    fn with_length_of_warming(
        &self,
        spec: &RunSpec,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<RunSpec>, Error> {
        let limits = &spec.options.limits;
        let Some(Sample {
            warming:
                Some(Warming {
                    filtered: FilteredLength::Auto(_),
                    ..
                }),
            ..
        }) = limits.sample
        else {
            return Ok(None);
        };
        limits.validate()?;
        if limits.skip_requests > 0 || limits.warmup_requests > 0 || limits.roi {
            return Err(Error::option(
                RunOption::Sample,
                text![
                    "auto looks at the program behind ",
                    RunOption::Skip,
                    " and ",
                    RunOption::Warmup,
                    "; expected these in instructions, and no ",
                    RunOption::Roi,
                    ", or a length such as 16M"
                ],
            ));
        }
        let source = match &spec.source {
            Some(source @ (SourceSpec::Workload { .. } | SourceSpec::Trace { .. })) => source,
            Some(SourceSpec::Program { .. }) => {
                return Err(Error::option(
                    RunOption::Sample,
                    "auto looks at a part of the program before the run, and a live program would do that twice; record it first, or expected a length such as 16M",
                ));
            }
            Some(SourceSpec::Mix { .. }) => {
                return Err(Error::option(
                    RunOption::Sample,
                    "auto looks at one program, not at those of a mix side by side; expected a length such as 16M",
                ));
            }
            None => return Ok(None),
        };
        let designs = self.designs(spec, spec.threads())?;
        let start = Instant::now();
        let mut pace = Pace::default();
        let mut go_on = |done, of| {
            let now = || Progress {
                design_instructions: Vec::new(),
                done,
                total: Some(of),
                phase: "looking for reuse",
                seconds: start.elapsed().as_secs_f64(),
            };
            !pace.is_due() || progress(&now())
        };
        let program = self.open(source, spec.options.seed)?;
        says_requests(&program.facts(), spec)?;
        let needed = reuse::needed(
            program,
            limits,
            &reuse::footprint_targets(&designs),
            &mut go_on,
        );
        let needed = needed.map_err(Error::into_failed)?;
        let mut found = spec.clone();
        let sample = found.options.limits.sample.as_mut();
        if let Some(warming) = sample.and_then(|s| s.warming.as_mut()) {
            warming.filtered = needed.map_or(FilteredLength::All, FilteredLength::Last);
        }
        Ok(Some(found))
    }

    /// One pass over the program. A sharded pass has no `early` check.
    pub(crate) fn run_once(
        &self,
        spec: &RunSpec,
        hosts: Option<&dyn RemoteHosts>,
        early: Option<EarlyCheck<'_>>,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<RunResult, Error> {
        // Mistakes in a configuration are reported before those in a program.
        spec.source.as_ref().ok_or_else(no_source)?;
        let designs = self.designs(spec, spec.threads())?;
        self.run_designs(designs, spec, hosts, early, progress)
    }

    /// As [`Installation::run_once`], with these designs.
    pub(crate) fn run_designs(
        &self,
        designs: Vec<Design>,
        spec: &RunSpec,
        hosts: Option<&dyn RemoteHosts>,
        early: Option<EarlyCheck<'_>>,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<RunResult, Error> {
        let source = spec.source.as_ref().ok_or_else(no_source)?;
        let mut streams = Vec::new();
        for share in shares(&designs) {
            let first = &designs[share[0]];
            let asks = share.iter().any(|&d| designs[d].has_shortcut());
            let querying = asks.then(|| with_queries(source)).flatten();
            let source = querying.as_ref().unwrap_or(source);
            let program = self.open_for(first, source, spec)?;
            says_requests(&program.facts(), spec)?;
            streams.push(Stream {
                program,
                designs: share,
            });
        }
        let options = spec.options();
        let shared_out = match (source, &streams[..]) {
            (SourceSpec::Trace { .. }, [only]) => {
                let facts = only.program.facts();
                let shards = shards::shards(&designs, &options, &facts);
                shards.map(|shards| (facts, shards, only.designs.clone()))
            }
            (SourceSpec::Trace { .. }, _) => Err(Text::from(
                "the results of shortcut queries decide what the program executes next",
            )),
            _ => Err(Text::from(
                "another program would have to run up to each beginning: record it first",
            )),
        };
        match shared_out {
            Ok((facts, shards, all)) => {
                drop(streams);
                let again = || {
                    let program = self.open(source, spec.options.seed)?;
                    let designs = all.clone();
                    Ok(vec![Stream { program, designs }])
                };
                let away = hosts.map(|hosts| RemoteRun { hosts, spec });
                return shards::run(
                    &designs,
                    (&facts, &again),
                    &options,
                    &shards,
                    away,
                    progress,
                );
            }
            Err(why) if hosts.is_some() => {
                return Err(Error::option(RunOption::Cluster, Text::from("other hosts simulate samples of a recording, and these cannot be shared out: ").and(why)));
            }
            Err(_) => {}
        }
        let mut result = run_unless(&designs, streams, &options, early, progress)?;
        if let SourceSpec::Mix { programs } = source {
            let on_each: Vec<&Design> = first_of_each(&designs).collect();
            let mut alone = vec![vec![None; programs.len()]; on_each.len()];
            if spec.options.alone {
                // The measurement is kept even if the programs fail alone.
                match self.alone(spec, programs, &on_each, progress) {
                    Ok(found) => alone = found,
                    Err(e) => {
                        let why = format!("the programs could not be run alone: {e}");
                        result.warnings.push(why);
                    }
                }
            }
            compare_programs(&mut result.designs, &alone);
        }
        Ok(result)
    }

    /// IPC of each of a mix's `programs` alone on each of `on`, over as many instructions or requests as
    /// in the mix.
    fn alone(
        &self,
        spec: &RunSpec,
        programs: &[SourceSpec],
        on: &[&Design],
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Vec<Vec<Option<f64>>>, Error> {
        let count = programs.len() as u64;
        let mut options = spec.options();
        let limits = &mut options.limits;
        // A program alone gets its share of the mix's fast-forwarding and warm-up.
        for shared in [
            &mut limits.skip,
            &mut limits.warmup,
            &mut limits.skip_requests,
            &mut limits.warmup_requests,
        ] {
            *shared /= count;
        }
        options.interval = None;
        options.perfetto = None;
        let (mut designs, mut streams) = (Vec::new(), Vec::new());
        for (number, source) in programs.iter().enumerate() {
            // A mix of one program, so that it is measured in the same way.
            for design in on {
                let program = Mix::new(vec![self.opens(source, spec.options.seed)?])?;
                streams.push(Stream {
                    program: Box::new(program),
                    designs: vec![designs.len()],
                });
                designs.push(Design {
                    name: format!("{} {number} alone", design.name),
                    ..(*design).clone()
                });
            }
        }
        let result = run(&designs, streams, &options, progress)?;
        let ipc = |d: &DesignResult| d.programs.first()?.ipc;
        let of = |which: usize| result.designs.iter().skip(which).step_by(on.len());
        Ok((0..on.len()).map(|m| of(m).map(ipc).collect()).collect())
    }

    /// As [`Installation::run`], on a given program instead of the source in `spec`.
    ///
    /// # Errors
    /// A mistake of the user, or an internal failure.
    pub fn run_program(
        &self,
        spec: &RunSpec,
        program: Box<dyn Program>,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<RunResult, Error> {
        if spec.options.precision.is_some() {
            return Err(Error::option(
                RunOption::Precision,
                text![
                    "a program of your own is run once, and this may take several passes; expected ",
                    RunOption::Sample,
                    ", such as 20K/1M:all+50K"
                ],
            ));
        }
        if spec.options.regions.is_some() {
            return Err(regions_without_trace());
        }
        if let Some(sample) = &spec.options.limits.sample
            && let Some(FilteredLength::Auto(_)) = sample.warming.map(|w| w.filtered)
        {
            return Err(Error::option(
                RunOption::Sample,
                "auto looks at a part of the program before the run, and a program of your own is run once; expected a length such as 16M",
            ));
        }
        let designs = self.designs(spec, program.facts().threads)?;
        let [designs_of_all] = &shares(&designs)[..] else {
            return Err(Error::refused(
                "a program of your own has one stream, and these designs need several: what they reply differs. Run them one by one",
            ));
        };
        says_requests(&program.facts(), spec)?;
        let streams = vec![Stream {
            program,
            designs: designs_of_all.clone(),
        }];
        let mut result = run(&designs, streams, &spec.options(), progress)?;
        result.settled = settled::named(spec, &result);
        Ok(result)
    }
}

/// Refuses limits in requests for a program that marks none, which would be measured without end. Regions
/// of interest count as requests if the program may enter them repeatedly: never in built-in programs,
/// nor in a mix.
fn says_requests(facts: &Facts, spec: &RunSpec) -> Result<(), Error> {
    let limits = &spec.options.limits;
    let counted = [
        (RunOption::Requests, limits.requests.is_some()),
        (RunOption::WarmupRequests, limits.warmup_requests > 0),
        (RunOption::SkipRequests, limits.skip_requests > 0),
    ];
    let Some((option, _)) = counted.into_iter().find(|(_, counted)| *counted) else {
        return Ok(());
    };
    let built_in = matches!(spec.source, Some(SourceSpec::Workload { .. }));
    let regions = !built_in && facts.parts.is_empty() && (facts.has_roi || facts.live);
    if facts.request.is_some() || regions {
        return Ok(());
    }
    let silent = facts.parts.iter().position(|p| p.request.is_none());
    let source = match (&spec.source, silent) {
        (Some(SourceSpec::Mix { programs }), Some(part)) => programs.get(part),
        (source, _) => source.as_ref(),
    };
    let name = match source {
        // Size and parameters do not matter here.
        Some(SourceSpec::Workload { name, .. }) => name,
        _ => silent.map_or(&facts.name, |part| &facts.parts[part].name),
    };
    let why =
        format!("{name} does not say where a request ends; expected a number of instructions");
    Err(Error::option(option, why))
}

/// The option that has samples measured, if any.
fn is_sampled(spec: &RunSpec) -> Option<RunOption> {
    let sample = spec.options.limits.sample.is_some();
    let precision = spec.options.precision.is_some();
    (sample.then_some(RunOption::Sample)).or(precision.then_some(RunOption::Precision))
}

/// The first design of each machine.
fn first_of_each(designs: &[Design]) -> impl Iterator<Item = &Design> {
    let listed = designs.iter().enumerate().filter(|(_, d)| !d.beside);
    listed.filter_map(|(i, d)| {
        let begins = i == 0 || designs[i - 1].machine() != d.machine();
        begins.then_some(d)
    })
}

/// Designs that share a stream: all without a shortcut together, each other one alone.
fn shares(designs: &[Design]) -> Vec<Vec<usize>> {
    let replies = |d: &usize| designs[*d].has_shortcut();
    let (alone, together): (Vec<usize>, Vec<usize>) = (0..designs.len()).partition(replies);
    let together = (!together.is_empty()).then_some(together);
    together
        .into_iter()
        .chain(alone.into_iter().map(|d| vec![d]))
        .collect()
}

/// Refuses a built-in program that is larger than a design's memory, before any of it is mapped.
fn fits(size: &str, designs: &[Design]) -> Result<(), Error> {
    let bytes = pagewalk_programs::parse_size(size)?;
    let memory = |d: &&Design| d.config.os.memory_gb.saturating_mul(1 << 30);
    match designs.iter().find(|d| bytes > memory(d)) {
        None => Ok(()),
        Some(d) => Err(Error::value(
            RunOption::Size,
            size,
            text![
                format!(
                    "{} has {} GB of memory; expected a smaller program, or a larger memory (",
                    d.name, d.config.os.memory_gb
                ),
                RunOption::Settings,
                format!(
                    " os.memory_gb={})",
                    bytes.div_ceil(1 << 30).next_power_of_two()
                ),
            ],
        )),
    }
}

/// The built-in program that queries a shortcut, for a design that has one. `None` for a program without
/// such a parameter, and if the parameter is given.
fn with_queries(source: &SourceSpec) -> Option<SourceSpec> {
    const PARAMETER: &str = "shortcut";
    let mut querying = source.clone();
    let SourceSpec::Workload { name, params, .. } = &mut querying else {
        return None;
    };
    let info = pagewalk_programs::workloads().find(|info| info.name == name.as_str())?;
    if params.contains_key(PARAMETER) || !info.params.iter().any(|p| p.name == PARAMETER) {
        return None;
    }
    params.insert(PARAMETER.to_owned(), "stlt".to_owned());
    Some(querying)
}

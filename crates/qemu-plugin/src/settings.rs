//! What the engine tells the plugin on QEMU's command line.

use pagewalk_ring::Geometry;

/// What the engine passes on the command line, kept for programs that this one executes.
pub struct Settings {
    /// Abstract Unix socket that the engine listens on.
    pub socket: String,
    /// The emulator's path.
    pub qemu: String,
    /// This library's path.
    pub plugin: String,
    /// Sizes of a segment.
    pub geometry: Geometry,
    /// Also count instructions with QEMU's own counter.
    pub count: bool,
    /// The processor that QEMU is told to be; empty: its own choice.
    pub cpu: String,
    /// What QEMU adds to the guest's addresses; empty: its own choice.
    pub base: String,
}

impl Settings {
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Settings, String> {
        let mut s = Settings {
            socket: String::new(),
            qemu: String::new(),
            plugin: String::new(),
            geometry: Geometry {
                slots: 1024,
                records: 1 << 17,
                code_bytes: 1 << 30,
            },
            count: false,
            cpu: String::new(),
            base: String::new(),
        };
        for argument in arguments {
            let (key, value) = argument
                .split_once('=')
                .ok_or_else(|| format!("'{argument}' is not key=value"))?;
            let number = || {
                value
                    .parse::<usize>()
                    .map_err(|_| format!("'{argument}': expected a number"))
            };
            match key {
                "socket" => s.socket = value.into(),
                "qemu" => s.qemu = value.into(),
                "plugin" => s.plugin = value.into(),
                "records" => s.geometry.records = number()?,
                "count" => s.count = value == "on",
                "cpu" => s.cpu = value.into(),
                "base" => s.base = value.into(),
                _ => return Err(format!("unknown key '{key}'")),
            }
        }
        if s.socket.is_empty() {
            return Err("socket=NAME is missing: start the program with `pagewalk run`".into());
        }
        if s.geometry.bytes().is_none() {
            return Err("records: expected a power of two from 16".into());
        }
        Ok(s)
    }

    /// The same as one value of QEMU's `-plugin` option, which doubles commas.
    pub fn as_option(&self) -> String {
        let e = |s: &str| s.replace(',', ",,");
        format!(
            "{},socket={},qemu={},plugin={},records={},count={},cpu={},base={}",
            e(&self.plugin),
            e(&self.socket),
            e(&self.qemu),
            e(&self.plugin),
            self.geometry.records,
            if self.count { "on" } else { "off" },
            e(&self.cpu),
            self.base
        )
    }
}

use windrow_lab::device::DeviceOptions;
use windrow_lab::load::percentile;
use windrow_lab::study::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let mib: u64 = a[1].parse().unwrap();
    let requests: u64 = a[2].parse().unwrap();
    let which = a.get(3).map(String::as_str).unwrap_or("all");
    let spec = StudySpec {
        members: 8,
        member_bytes: mib << 20,
        live_percent: 85,
        configurations: Configuration::ALL.into_iter().filter(|c| which == "all" || which.split(',').any(|w| w == c.name())).collect(),
        workloads: Workload::ALL.to_vec(),
        pressures: vec![Pressure::Full, Pressure::Tenth],
        flushes: vec![],
        flush_workloads: vec![],
        judged_requests: requests,
        requests,
        flush_requests: requests / 4,
        seed: 1,
        devices: DeviceOptions { protected: true, suspend: a.iter().any(|a| a == "suspend") },
    };
    let mut study = Study::new(&spec);
    let t = std::time::Instant::now();
    let mut last = String::new();
    let r = study.run(&mut |what, _, _| {
        if what != last {
            eprintln!("{:.1} {what}", t.elapsed().as_secs_f64());
            last = what.to_string();
        }
    });
    println!("{r:?} {:.1} s", t.elapsed().as_secs_f64());
    println!("{:?}", study.settling);
    for r in &study.rows {
        let o = &r.outcome;
        let p = |v: &[u32]| [500_000, 990_000, 999_000, 999_900].map(|q| percentile(v, q).map_or(0.0, |x| x as f64 / 1000.0));
        let u = o.write_bytes.max(1) as f64;
        println!(
            "{:16} {:12} {:?} x{} iops {:.0} MB/s {:.0} wMB/s {:.0} r {:?} w {:?} waf {:.2} nand {:.2} flushes {} erases {}",
            r.configuration.name(),
            r.workload.name(),
            r.pressure,
            r.tasks,
            o.per_second(),
            o.bytes_per_second() / 1e6,
            o.write_bytes_per_second() / 1e6,
            p(&o.reads),
            p(&o.writes),
            o.devices.written_bytes as f64 / u,
            o.devices.programmed_bytes as f64 / u,
            o.devices.flushes,
            o.devices.erases
        );
        println!("      {:?}", o.causes.iter().map(|(n, b)| format!("{n} {:.2}", *b as f64 / u)).collect::<Vec<_>>());
    }
}

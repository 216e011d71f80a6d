//! Power cuts at any operation, after which the disk has the synced data and any part of the rest.
//! Durable batches are there, the batches that are there have no gap, and no damage is reported.

use crate::chance::StoreRng;
use crate::forgetful::ForgetfulDisk;
use crate::model::{StoreModel, all, open, small};
use std::io;
use store::{BatchSeq, Fault, KeyValueStore, StoreOptions};

#[test]
fn a_power_cut_at_any_operation_loses_nothing_that_was_durable() {
    for seed in 0..seeds() {
        live(seed, false).unwrap_or_else(|lost| panic!("seed {seed}: {lost}"));
    }
}

#[test]
fn a_disk_whose_sync_does_nothing_is_found_out() {
    assert!((0..40).any(|seed| live(seed, true).is_err()));
}

#[test]
fn what_an_open_found_survives_the_power_that_goes_next() {
    let (disk, mut model, mut rng) =
        (ForgetfulDisk::default(), StoreModel::default(), StoreRng::new(1));
    let (store, ..) = open(&disk, StoreOptions::default()).expect("the store opens");
    // The process wrote these, and ended before a sync; the system still has them.
    disk.state().lies = true;
    for _ in 0..20 {
        model.commit_in_turn(&mut store.handle(), &mut rng);
    }
    drop(store);
    disk.state().lies = false;
    let (store, report, _) = open(&disk, StoreOptions::default()).expect("the store opens");
    assert_eq!((report.seq, store.handle().durable()), (model.seq(), model.seq()));
    let left = ForgetfulDisk::of(&disk.left(&mut rng));
    let (_again, report, _) =
        open(&left, StoreOptions::default()).expect("a power cut is not a damage");
    assert_eq!(report.seq, model.seq());
}

/// Returns the number of seeds: 100, or `GODWIT_STORE_SEEDS`.
fn seeds() -> u64 {
    let said = std::env::var("GODWIT_STORE_SEEDS");
    said.map_or(100, |said| said.parse().expect("GODWIT_STORE_SEEDS is a number"))
}

/// Runs one store through twelve power cuts.
fn live(seed: u64, lies: bool) -> Result<(), String> {
    let mut rng = StoreRng::new(seed);
    let (mut disk, mut model, mut promised) =
        (ForgetfulDisk::default(), StoreModel::default(), BatchSeq(0));
    for _ in 0..12 {
        disk.state().lies = lies;
        disk.state().power = Some(rng.below(120));
        if rng.below(3) == 0 {
            // After a sync that failed, batches stand in two logs, and in one of them in parts.
            let faults = vec![io::ErrorKind::Other; 1 + rng.below(3) as usize];
            disk.state().sync_faults = faults;
        }
        let options = StoreOptions { memory_bytes: 2 << 10, ..small() };
        match open(&disk, options) {
            Ok((store, report, heard)) => {
                if report.seq < promised {
                    return Err(format!("{report:?}, and {promised:?} was durable"));
                }
                model.forget_after(report.seq);
                // Reading needs no power in this world.
                if all(&store.handle()).map_err(|fault| fault.to_string())? != model.at(report.seq)
                {
                    return Err(format!("{report:?}, and the pairs are not those of that batch"));
                }
                let mut handle = store.handle();
                for _ in 0..rng.below(60) {
                    let taken = model.commit(&mut handle, &mut rng);
                    if matches!(taken, Err(Fault::Disk(_))) || disk.state().power == Some(0) {
                        break;
                    }
                    if rng.below(8) == 0 {
                        std::thread::yield_now();
                    }
                }
                drop(store);
                promised = promised.max(report.seq).max(heard.durable());
            }
            Err(Fault::Disk(_)) => {}
            Err(fault) => return Err(fault.to_string()),
        }
        disk = ForgetfulDisk::of(&disk.left(&mut rng));
    }
    Ok(())
}

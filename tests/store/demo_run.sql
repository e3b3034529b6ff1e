PRAGMA application_id=1398361679;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'demo-0123456789ab @ local');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
INSERT INTO "study_directions" VALUES(2,'MINIMIZE',1,1);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_user_attributes" VALUES(1,1,'objectives','["accuracy", "latency_ms"]');
CREATE TABLE syno_attempts (
    job INTEGER NOT NULL REFERENCES syno_jobs, attempt INTEGER NOT NULL, host TEXT NOT NULL, started TEXT NOT NULL,
    ended TEXT, cause TEXT NOT NULL, wall_s REAL NOT NULL, cpu_s REAL NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (job, attempt));
CREATE TABLE syno_bindings (
    run INTEGER NOT NULL REFERENCES syno_runs, binding TEXT NOT NULL, count INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (run, binding));
INSERT INTO "syno_bindings" VALUES(1,'{"C_in": 8, "C_out": 8, "H": 8, "N": 1, "W": 8}',2,'4a8cbad77703953a');
INSERT INTO "syno_bindings" VALUES(1,'{"C_in": 16, "C_out": 16, "H": 4, "N": 1, "W": 4}',1,'04d5b51fce1a2b67');
CREATE TABLE syno_jobs (
    job INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, params TEXT NOT NULL, parent INTEGER,
    after TEXT NOT NULL, resources TEXT NOT NULL, max_attempts INTEGER NOT NULL, created TEXT NOT NULL,
    state TEXT NOT NULL, wish TEXT NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
    deaths INTEGER NOT NULL, reason TEXT NOT NULL, result TEXT, started TEXT, ended TEXT,
    wall_s REAL NOT NULL, cpu_s REAL NOT NULL, digest TEXT NOT NULL);
CREATE TABLE syno_latencies (
    run INTEGER NOT NULL, fingerprint TEXT NOT NULL, target TEXT NOT NULL, binding TEXT NOT NULL,
    count INTEGER NOT NULL, latency_ms REAL NOT NULL, result TEXT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (run, fingerprint, target, binding),
    FOREIGN KEY (run, fingerprint) REFERENCES syno_operators (run, fingerprint));
INSERT INTO "syno_latencies" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','local','{"C_in": 8, "C_out": 8, "H": 8, "N": 1, "W": 8}',2,0.5,'{"latency_ms": 0.5, "trials": 3}','46ac809a7f9878a5');
INSERT INTO "syno_latencies" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','local','{"C_in": 16, "C_out": 16, "H": 4, "N": 1, "W": 4}',1,0.25,'{"latency_ms": 0.25, "trials": 3}','79c5e4784899337d');
INSERT INTO "syno_latencies" VALUES(1,'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','local','{"C_in": 8, "C_out": 8, "H": 8, "N": 1, "W": 8}',2,0.125,'{"latency_ms": 0.125, "trials": 3}','9e683b356e11a56c');
INSERT INTO "syno_latencies" VALUES(1,'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','local','{"C_in": 16, "C_out": 16, "H": 4, "N": 1, "W": 4}',1,0.0625,'{"latency_ms": 0.0625, "trials": 3}','2bc05c22035d442a');
CREATE TABLE syno_leases (
    job INTEGER PRIMARY KEY REFERENCES syno_jobs, token TEXT NOT NULL, place TEXT NOT NULL, boot TEXT NOT NULL,
    supervisor TEXT NOT NULL, child TEXT NOT NULL, beat INTEGER NOT NULL, at REAL NOT NULL, digest TEXT NOT NULL);
CREATE TABLE syno_operators (
    run INTEGER NOT NULL REFERENCES syno_runs, position INTEGER NOT NULL, fingerprint TEXT NOT NULL,
    operator TEXT NOT NULL, flops INTEGER NOT NULL, params INTEGER NOT NULL, label TEXT NOT NULL,
    baseline INTEGER NOT NULL, digest TEXT NOT NULL, UNIQUE (run, fingerprint));
INSERT INTO "syno_operators" VALUES(1,0,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','{
 "format": "syno-lab-operator",
 "version": 1,
 "primary": [
  "N",
  "C_in",
  "C_out",
  "H",
  "W"
 ],
 "coefficient": [
  "k_1=3"
 ],
 "input": [
  "N",
  "C_in",
  "H",
  "W"
 ],
 "output": [
  "N",
  "C_out",
  "H",
  "W"
 ],
 "steps": [
  {
   "primitive": "REDUCE",
   "parameter": "C_in"
  },
  {
   "primitive": "REDUCE",
   "parameter": "k_1"
  },
  {
   "primitive": "REDUCE",
   "parameter": "k_1"
  },
  {
   "primitive": "SHARE",
   "operands": [
    4,
    5,
    6
   ],
   "given": [
    1
   ]
  },
  {
   "primitive": "UNFOLD",
   "operands": [
    2,
    5
   ]
  },
  {
   "primitive": "UNFOLD",
   "operands": [
    3,
    6
   ]
  }
 ],
 "match": [
  0,
  4,
  7,
  8
 ],
 "fixed": [
  [
   0,
   0
  ]
 ]
}',2000,300,'conv2d',1,'dcbd5192e5ba22b1');
INSERT INTO "syno_operators" VALUES(1,1,'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','{
 "format": "syno-lab-operator",
 "version": 1,
 "primary": [
  "N",
  "C_in",
  "C_out",
  "H",
  "W"
 ],
 "coefficient": [],
 "input": [
  "N",
  "C_in",
  "H",
  "W"
 ],
 "output": [
  "N",
  "C_out",
  "H",
  "W"
 ],
 "steps": [
  {
   "primitive": "REDUCE",
   "parameter": "C_in"
  },
  {
   "primitive": "SHARE",
   "operands": [
    4
   ],
   "given": [
    1
   ]
  }
 ],
 "match": [
  0,
  4,
  2,
  3
 ],
 "fixed": [
  [
   0,
   0
  ]
 ]
}',500,40,'sample 1',0,'a4c779302dc25da9');
INSERT INTO "syno_operators" VALUES(1,2,'cccccccccccccccccccccccccccccccc','{
 "format": "syno-lab-operator",
 "version": 1,
 "primary": [
  "N",
  "C_in",
  "C_out",
  "H",
  "W"
 ],
 "coefficient": [],
 "input": [
  "N",
  "C_in",
  "H",
  "W"
 ],
 "output": [
  "N",
  "C_out",
  "H",
  "W"
 ],
 "steps": [
  {
   "primitive": "REDUCE",
   "parameter": "C_in"
  },
  {
   "primitive": "SHARE",
   "operands": [
    4
   ],
   "given": [
    1
   ]
  }
 ],
 "match": [
  0,
  4,
  2,
  3
 ],
 "fixed": [
  [
   0,
   0
  ]
 ]
}',500,40,'sample 2',0,'ff508e4a98c8941e');
CREATE TABLE syno_progress (
    job INTEGER PRIMARY KEY REFERENCES syno_jobs, fraction REAL NOT NULL, message TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE syno_published (
    run INTEGER NOT NULL, fingerprint TEXT NOT NULL, target TEXT NOT NULL, accuracy REAL NOT NULL,
    latency_ms REAL NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (run, fingerprint, target, accuracy, latency_ms));
INSERT INTO "syno_published" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','local',0.75,1.25,'e339f4bf7cf52165');
INSERT INTO "syno_published" VALUES(1,'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','local',0.5,0.3125,'836f508d21a2a933');
CREATE TABLE syno_runs (
    run INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL, created TEXT NOT NULL,
    digest TEXT NOT NULL);
INSERT INTO "syno_runs" VALUES(1,'demo-0123456789ab','{"data": "digits", "epochs": 2, "seed": 0, "trials": 3, "tuned": 1, "version": "0.1.0"}','2026-11-22T15:59:02+00:00','991ccfc1d9df432e');
CREATE TABLE syno_search_latencies (
    search INTEGER NOT NULL, number INTEGER NOT NULL, target TEXT NOT NULL, latency_ms REAL NOT NULL,
    result TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (search, number, target),
    FOREIGN KEY (search, number) REFERENCES syno_search_trials (search, number));
CREATE TABLE syno_search_outcomes (
    search INTEGER NOT NULL, number INTEGER NOT NULL, position INTEGER NOT NULL, state TEXT NOT NULL,
    accuracy REAL, reward REAL NOT NULL, job INTEGER, outcome TEXT NOT NULL, ended TEXT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (search, number),
    FOREIGN KEY (search, number) REFERENCES syno_search_trials (search, number));
CREATE TABLE syno_search_trials (
    search INTEGER NOT NULL REFERENCES syno_searches, number INTEGER NOT NULL, fingerprint TEXT NOT NULL,
    operator TEXT NOT NULL, steps TEXT NOT NULL, flops INTEGER NOT NULL, params INTEGER NOT NULL,
    created TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (search, number), UNIQUE (search, fingerprint));
CREATE TABLE syno_searches (
    search INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL, created TEXT NOT NULL,
    digest TEXT NOT NULL);
CREATE TABLE syno_trainings (
    run INTEGER NOT NULL, fingerprint TEXT NOT NULL, accuracy REAL, result TEXT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (run, fingerprint), FOREIGN KEY (run, fingerprint) REFERENCES syno_operators (run, fingerprint));
INSERT INTO "syno_trainings" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0.75,'{"accuracy": 0.75, "curve": [{"accuracy": 0.5, "epoch": 1, "seconds": 1.0, "test_loss": 1.5, "train_loss": 2.0}], "wall_s": 2.5}','e90a1b0b82b3e3ab');
INSERT INTO "syno_trainings" VALUES(1,'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',0.5,'{"accuracy": 0.5, "curve": [{"accuracy": 0.5, "epoch": 1, "seconds": 1.0, "test_loss": 1.5, "train_loss": 2.0}], "wall_s": 1.5}','00e5c55d6d4a3aa7');
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'fingerprint','"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"');
INSERT INTO "trial_user_attributes" VALUES(2,1,'target','"local"');
INSERT INTO "trial_user_attributes" VALUES(3,1,'label','"conv2d"');
INSERT INTO "trial_user_attributes" VALUES(4,1,'flops','2000');
INSERT INTO "trial_user_attributes" VALUES(5,1,'params','300');
INSERT INTO "trial_user_attributes" VALUES(6,1,'baseline','true');
INSERT INTO "trial_user_attributes" VALUES(7,2,'fingerprint','"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"');
INSERT INTO "trial_user_attributes" VALUES(8,2,'target','"local"');
INSERT INTO "trial_user_attributes" VALUES(9,2,'label','"sample 1"');
INSERT INTO "trial_user_attributes" VALUES(10,2,'flops','500');
INSERT INTO "trial_user_attributes" VALUES(11,2,'params','40');
INSERT INTO "trial_user_attributes" VALUES(12,2,'baseline','false');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,0.75,'FINITE');
INSERT INTO "trial_values" VALUES(2,1,1,1.25,'FINITE');
INSERT INTO "trial_values" VALUES(3,2,0,0.5,'FINITE');
INSERT INTO "trial_values" VALUES(4,2,1,0.3125,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-22 15:59:08.110343','2026-11-22 15:59:08.110343');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-22 15:59:08.265769','2026-11-22 15:59:08.265769');
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE INDEX syno_jobs_by_state ON syno_jobs (state);
CREATE INDEX syno_jobs_by_parent ON syno_jobs (parent);
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
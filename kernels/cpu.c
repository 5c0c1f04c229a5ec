/*
 * cpu.c - the CPU device: cuts each operation of device.h into pieces, which
 * the threads take from a queue.
 *
 * A piece is fixed by the operation's arguments alone, is done whole by one
 * thread, and partial sums are added in the order of the pieces: hence the
 * same bits for any number of threads.  The BLAS is only ever called for one
 * piece, and told to use one thread.
 */
#include "kernels/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *get_floats(size_t n)
{
	if (n > (SIZE_MAX - 64) / sizeof(float))
		return NULL;
	return aligned_alloc(64, (n * sizeof(float) / 64 + 1) * 64);
}

int ng_cpu_scratch(struct cpu *cpu, size_t each, size_t n)
{
	if (n > 0 && each > SIZE_MAX / sizeof(float) / n)
		return fail(cpu, NG_DEV_MEMORY, "scratch memory would not fit the address space");
	if (each * n <= cpu->scratch_size)
		return 0;
	free(cpu->scratch);
	cpu->scratch_size = 0;
	cpu->scratch = get_floats(each * n);
	if (!cpu->scratch)
		return fail(cpu, NG_DEV_MEMORY, "out of memory for scratch");
	cpu->scratch_size = each * n;
	return 0;
}

static void cpu_close(struct ng_device *dev)
{
	if (!dev)
		return;
	struct cpu *cpu = cpu_of(dev);
	ng_threads_free(cpu->pool);
	free(cpu->scratch);
	free(cpu);
}

static const char *cpu_last_error(struct ng_device *dev)
{
	return cpu_of(dev)->error;
}

/* ---- memory ---- */

static int cpu_alloc(struct ng_device *dev, struct ng_ref *out, size_t elements)
{
	out->off = 0;
	out->mem = get_floats(elements);
	return out->mem ? NG_DEV_OK : fail(cpu_of(dev), NG_DEV_MEMORY, "out of memory for tensors");
}

static void cpu_free(struct ng_device *dev, struct ng_ref ref)
{
	(void)dev;
	free(ref.mem);
}

static int cpu_upload(struct ng_device *dev, struct ng_ref dst, const void *src, size_t elements)
{
	(void)dev;
	if (elements > 0)
		memcpy(at(dst), src, elements * sizeof(float));
	return NG_DEV_OK;
}

static int cpu_download(struct ng_device *dev, void *dst, struct ng_ref src, size_t elements)
{
	(void)dev;
	if (elements > 0)
		memcpy(dst, at(src), elements * sizeof(float));
	return NG_DEV_OK;
}

static int cpu_sync(struct ng_device *dev)
{
	(void)dev;
	return NG_DEV_OK;
}

/* ---- opening ---- */

static bool has_avx2(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
	return false;
#endif
}

static bool has_sse2(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_cpu_supports("sse2") != 0;
#else
	return false;
#endif
}

static const struct ng_cpu_ops *choose(const char *isa)
{
	const struct ng_cpu_ops *all[3] = { has_avx2() ? ng_cpu_ops_avx2() : NULL,
		has_sse2() ? ng_cpu_ops_sse2() : NULL, ng_cpu_ops_c() };

	for (int i = 0; i < 3; i++)
		if (all[i] && (!isa || strcmp(isa, all[i]->isa) == 0))
			return all[i];
	return NULL;
}

int ng_cpu_open(struct ng_device **out, int threads, const char *isa, ng_sgemm_fn *sgemm, const char **why)
{
	const struct ng_cpu_ops *ops = choose(isa);
	const char *none, *core;

	*out = NULL;
	if (!why)
		why = &none;
	if (!ops) {
		*why = "this processor or build has no such instruction set";
		return NG_DEV_MISSING;
	}
	core = ng_cpu_blas_quiet();
	if (!ng_cpu_blas_works(sgemm ? sgemm : cblas_sgemm)) {
		*why = "the BLAS multiplies wrongly on this processor (it may be newer than the library: set "
		       "OPENBLAS_CORETYPE=Haswell in the environment, or install a newer OpenBLAS)";
		return NG_DEV_FAILED;
	}
	struct cpu *cpu = calloc(1, sizeof(*cpu));
	if (!cpu) {
		*why = "out of memory";
		return NG_DEV_MEMORY;
	}
	cpu->pool = ng_threads_new(threads);
	if (!cpu->pool) {
		free(cpu);
		*why = "cannot start the threads";
		return NG_DEV_MEMORY;
	}
	if (!sgemm)
		ng_cpu_blas_warm(threads);
	cpu->dev = (struct ng_device){ .abi = NG_DEVICE_ABI,
		.size = sizeof(struct ng_device),
		.close = cpu_close,
		.last_error = cpu_last_error,
		.alloc = cpu_alloc,
		.free = cpu_free,
		.upload = cpu_upload,
		.download = cpu_download,
		.sync = cpu_sync };
	ng_cpu_flat(&cpu->dev);
	ng_cpu_products(&cpu->dev);
	ng_cpu_encoder(&cpu->dev);
	cpu->dev.self = cpu;
	cpu->ops = ops;
	cpu->sgemm = sgemm ? sgemm : cblas_sgemm;
	cpu->error = "";
	cpu->dev.info.threads = ng_threads_count(cpu->pool);
	snprintf(cpu->dev.info.name, sizeof(cpu->dev.info.name), "cpu: %s, %s%s%s, %d thread%s", ops->name,
		core ? "OpenBLAS" : "BLAS", core ? " " : "", core ? core : "", cpu->dev.info.threads,
		cpu->dev.info.threads == 1 ? "" : "s");
	*out = &cpu->dev;
	return NG_DEV_OK;
}

int ng_device_open(struct ng_device **out, const char *spec, int threads, const char *isa, const char **why)
{
	*out = NULL;
	if (strcmp(spec, "auto") == 0 || strcmp(spec, "cpu") == 0)
		return ng_cpu_open(out, threads, isa, NULL, why);
	if (why)
		*why = "no such device (auto or cpu)";
	return NG_DEV_MISSING;
}

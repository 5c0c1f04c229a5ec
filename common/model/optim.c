/* optim.c - see optim.h. */
#include "common/base/compat.h"

#include "common/model/optim.h"

#include <math.h>

size_t ng_optim_moments(const struct ng_optim *o)
{
	if (o->kind == NG_OPTIM_ADAMW)
		return 2;
	return o->momentum > 0 ? 1 : 0;
}

static int group(struct ng_optim *o, struct ng_model *m, struct ng_ref grad, size_t from, size_t n, double decay,
	double lr, double gscale)
{
	struct ng_device *dev = m->dev;
	struct ng_ref w = ng_at(m->w, from), g = ng_at(grad, from);

	if (n == 0)
		return 0;
	if (o->kind == NG_OPTIM_ADAMW) {
		double t = (double)o->steps + 1;

		return dev->adamw(dev, w, ng_at(o->m, from), ng_at(o->v, from), g, n, (float)lr, (float)o->beta1,
			(float)o->beta2, (float)o->eps, (float)decay, (float)(1 - pow(o->beta1, t)),
			(float)(1 - pow(o->beta2, t)), (float)gscale);
	}
	return dev->sgd(dev, w, o->momentum > 0 ? ng_at(o->m, from) : ng_absent, g, n, (float)lr, (float)o->momentum,
		(float)decay, (float)gscale);
}

int ng_optim_step(
	struct ng_optim *o, struct ng_model *m, struct ng_ref grad, double lr, double *norm, struct ng_err *err)
{
	double sum, gscale = 1;
	int status = m->dev->sumsq(m->dev, &sum, grad, m->count);

	if (status == 0) {
		*norm = sqrt(sum);
		if (!isfinite(*norm))
			return ng_fail(err, NG_DATA, "the gradient is not finite");
		if (o->clip > 0 && o->clip / (*norm + 1e-6) < 1)
			gscale = o->clip / (*norm + 1e-6);
		status = group(o, m, grad, 0, m->decay_count, o->decay, lr, gscale);
	}
	if (status == 0)
		status = group(o, m, grad, m->decay_count, m->count - m->decay_count, 0, lr, gscale);
	if (status)
		return ng_model_device_error(m, status, "cannot step the optimiser", err);
	o->steps++;
	return 0;
}
